from foldbatch.engines.cuda.held_run import refused


def test_what_is_refused_says_what_to_do():
    text = str(refused("its results"))
    assert text.startswith("hold: expected a batch of held examples")
    assert text.endswith("found its results; give the examples, or prepared ones")
