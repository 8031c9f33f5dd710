# An image that serves a model: docs/serving.md says how. It is not built in CI, which has no docker.
#
#     docker build -t foldbatch .
#     docker run --rm -p 8000:8000 -v "$PWD/runs/sst:/model:ro" foldbatch
FROM python:3.13-slim AS built
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY foldbatch ./foldbatch
RUN python -m venv /served && /served/bin/pip install --no-cache-dir '.[serve,llvm,decide]'

FROM python:3.13-slim
COPY --from=built /served /served
RUN useradd --system --create-home served
USER served
ENV PATH=/served/bin:$PATH PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000
# SIGTERM, by which docker stop and Kubernetes end it, answers what waits first.
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s --interval=10s --timeout=3s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["foldbatch", "serve"]
CMD ["/model", "--host", "0.0.0.0", "--watch"]
