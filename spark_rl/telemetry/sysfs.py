"""Temperatures and fans from /sys: thermal zones with their trip points, hwmon chips matched by name.

In: the root of sysfs (tests give their own). Out: a list of sensors found once, and their values now.
The numbering of hwmon is not stable over boots, so nothing here depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys")

MAX_PLAUSIBLE_C = 150.0
"""Above it a zone is broken: no silicon of this class survives it."""
MIN_CRITICAL_C = 70.0
"""Firmware that claims to shut down below it does not mean it."""
MIN_PLAUSIBLE_C = -20.0
"""Unpowered radios and empty slots report -273 or the like."""


@dataclass(frozen=True)
class ThermalZone:
    name: str
    """The zone's type: "acpitz", "x86_pkg_temp", "tj-thermal"."""
    value_file: Path
    critical_c: float | None
    """Temperature at which the machine shuts itself down; None when the zone does not say."""


@dataclass(frozen=True)
class HwmonFile:
    chip: str
    kind: str
    """"temp" or "fan"."""
    value_file: Path
    scale: float


def find_thermal_zones(sys: Path = SYS) -> list[ThermalZone]:
    """Every zone that has a temperature, in the order of its number. [] in a container without /sys."""
    zones = []
    for folder in _listing(sys / "class" / "thermal", "thermal_zone"):
        name = _text(folder / "type")
        if name is None or not (folder / "temp").exists():
            continue
        critical = None
        for trip_type in sorted(folder.glob("trip_point_*_type")):
            if _text(trip_type) == "critical":
                critical = _number(trip_type.with_name(trip_type.name.replace("_type", "_temp")), 1e-3)
        zones.append(ThermalZone(name, folder / "temp", critical if critical and critical >= MIN_CRITICAL_C else None))
    return zones


def find_hwmon(sys: Path = SYS) -> list[HwmonFile]:
    """Temperatures of NVMe drives and fans that report revolutions, found by the chip's name.

    The ACPI fan of DGX Spark reports a state (2, 3), not revolutions, and is left out.
    """
    found = []
    for folder in _listing(sys / "class" / "hwmon", "hwmon"):
        chip = _text(folder / "name")
        if chip is None:
            continue
        if chip == "nvme" and (folder / "temp1_input").exists():
            found.append(HwmonFile(chip, "temp", folder / "temp1_input", 1e-3))
        if chip != "acpi_fan":
            found += [HwmonFile(chip, "fan", path, 1.0) for path in sorted(folder.glob("fan*_input"))]
    return found


def read_temperature(zone: ThermalZone) -> float | None:
    """Degrees Celsius, or None when the zone is off, gone or implausible."""
    value = _number(zone.value_file, 1e-3)
    return value if value is not None and MIN_PLAUSIBLE_C < value < MAX_PLAUSIBLE_C else None


def read_hottest(zones: Sequence[ThermalZone]) -> tuple[float | None, float | None]:
    """(hottest temperature, smallest distance to a critical trip point) over all zones that answer."""
    hottest: float | None = None
    margin: float | None = None
    for zone in zones:
        value = read_temperature(zone)
        if value is None:
            continue
        hottest = value if hottest is None else max(hottest, value)
        if zone.critical_c is not None:
            distance = zone.critical_c - value
            margin = distance if margin is None else min(margin, distance)
    return hottest, margin


def read_hwmon(files: Sequence[HwmonFile], kind: str) -> float | None:
    """The highest value of that kind ("temp": NVMe, "fan": revolutions per minute)."""
    values = [
        value for file in files if file.kind == kind and (value := _number(file.value_file, file.scale)) is not None
    ]
    return max(values) if values else None


def product_name(sys: Path = SYS) -> str | None:
    """DMI product name: "NVIDIA_DGX_Spark" on the founders' unit. None where firmware tells nothing."""
    return _text(sys / "class" / "dmi" / "id" / "product_name")


def _listing(folder: Path, prefix: str) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except OSError:
        return []
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path, scale: float) -> float | None:
    text = _text(path)
    try:
        return None if text is None else float(text) * scale
    except ValueError:
        return None
