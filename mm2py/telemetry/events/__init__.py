"""Everything that happens, one frozen class each; `base` explains how they reach the log."""

# ruff: noqa: F403 - so that each event is named once, where it is

from mm2py.telemetry.events.base import *
from mm2py.telemetry.events.connectors import *
from mm2py.telemetry.events.control import *
from mm2py.telemetry.events.daemon import *
from mm2py.telemetry.events.epochs import *
from mm2py.telemetry.events.flow import *
from mm2py.telemetry.events.groups import *
from mm2py.telemetry.events.partitions import *
from mm2py.telemetry.events.rest import *
from mm2py.telemetry.events.topics import *
