"""Get the answer as a typed value: a dataclass, or a pydantic model with its own rules.

The model must return a value of that type, and Bridle validates it: `output` is an instance of the
type, or the outcome is not ok. TypedDicts and msgspec structs work the same way.

$ pip install pydantic
$ python examples/typed_output.py
"""

import asyncio
from dataclasses import dataclass

from pydantic import BaseModel, Field

import bridle

EMAIL = """
Hi, this is Ada Lovelace, born 1815. Please send me 3 saddles (310 euros each)
and a bridle (49 euros) before Friday.
"""


@dataclass
class Person:
    name: str
    born: int | None


class Line(BaseModel):
    article: str
    count: int = Field(gt=0)
    unit_price: float


class Order(BaseModel):
    lines: list[Line]

    @property
    def total(self) -> float:
        return sum(line.count * line.unit_price for line in self.lines)


async def main() -> None:
    outcome = await bridle.run(f"Who wrote this?\n{EMAIL}", output_type=Person)
    person = outcome.raise_for_reason().output  # type checkers know that this is a Person
    print(f"{person.name}, born {person.born}")

    order = await bridle.run(f"What is ordered here?\n{EMAIL}", output_type=Order)
    if order.output is None:  # instead of catching an error, check the reason
        print(f"no order: {order.reason}: {order.detail}")
    else:
        print(f"{len(order.output.lines)} lines, {order.output.total} euros in all")


if __name__ == "__main__":
    asyncio.run(main())
