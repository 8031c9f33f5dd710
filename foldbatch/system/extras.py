"""How the libraries of an extra are installed: one sentence, for all errors."""

from pathlib import Path

IN_A_CHECKOUT = Path(__file__).parents[2].joinpath("pyproject.toml").is_file()


def install(extra: str) -> str:
    """Return the command that brings what an extra names: in a checkout, that of the checkout.

    >>> install("torch")
    "pip install -e '.[torch]' in the checkout"
    """
    return (
        f"pip install -e '.[{extra}]' in the checkout"
        if IN_A_CHECKOUT
        else f"pip install 'foldbatch[{extra}]'"
    )
