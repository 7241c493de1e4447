"""What all settings share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def check_crop_area(area: tuple[float, float]) -> None:
    """For ranges named `crop_area`, whose bounds are fractions."""
    if not 0 < area[0] <= area[1]:
        raise ValueError(f"crop_area={area}: needs 0 < low <= high <= 1")


class Settings(BaseModel):
    """Base of all settings: immutable, no unknown fields, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
