"""Field tests: each feature of a configuration on the host and the cards that it names."""

from ._field_test import FieldTest
from ._report import REPORT_SCHEMA
from ._step import StepResult, StepStatus
from ._steps import GROUPS

__all__ = ["GROUPS", "REPORT_SCHEMA", "FieldTest", "StepResult", "StepStatus"]
