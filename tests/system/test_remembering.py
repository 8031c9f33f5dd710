"""What is made of an object is made once, and goes with the object."""

import weakref

from foldbatch.system.remembering import remembered


class Thing: ...


def test_it_is_made_once_for_all_that_decides_it() -> None:
    made = []

    @remembered
    def pair(thing: Thing, name: str, *, many: bool = False) -> list[object]:
        made.append(name)
        return [name, many]

    one, other = Thing(), Thing()
    assert pair(one, "a") is pair(one, "a")
    assert pair(one, "a") is not pair(other, "a")
    assert pair(one, "b") == ["b", False]
    assert pair(one, "a", many=True) == ["a", True]
    assert made == ["a", "a", "b", "a"]


def test_it_goes_with_the_object() -> None:
    @remembered
    def copy(thing: Thing) -> Thing:
        return Thing()

    thing = Thing()
    gone = weakref.ref(copy(thing))
    del thing

    assert gone() is None
