"""The device and the reference in English: what a candidate runs on, and the time it has to beat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stark.core.device import MEMORY, Device, Roofline
from stark.core.precision import Precision
from stark.core.reference import Reference, TensorSpec
from stark.explain.evaluation import bound_text, objective_text, why_unknown
from stark.explain.numbers import counted
from stark.explain.profile import profile_lines

_FITTING: dict[Precision, str] = {
    "reference": "float32 products and tf32x3 usually fit the budget; bf16x3, TF32, fp16 and bf16 products do not",
    "fp32-split": "float32 products in parts (tf32x3, bf16x3) usually fit the budget; single TF32, fp16 and bf16 "
    "products do not, unless the reference itself uses them",
    "tf32": "single TF32 and fp16 products usually fit the budget; bf16 products do not, unless the reference itself "
    "uses them",
    "bf16": "single bf16, fp16 and TF32 products usually fit the budget",
}
"""What usually passes with float32 outputs."""


def device_text(device: Device) -> str:
    """The facts about a device, one per line."""
    return "\n".join(f"- {fact}" for fact in _device_facts(device))


def reference_text(reference: Reference) -> str:
    """The reference's time, the roofline, the allowed error, where the reference's time goes, and warnings.

    With several cases, all but the warnings is stated for each.
    """
    notes = [f"- note: {warning}" for warning in reference.warnings]
    if not reference.cases:
        return "\n".join([*_facts(reference), *notes])
    parts = ("\n".join([f"Case {case}:", *_facts(each)]) for case, each in reference.cases.items())
    return "\n".join([*parts, *notes])


def signature_text(reference: Reference) -> str:
    """Inputs and outputs; with several cases, those of each, and what a candidate does about them."""
    if reference.weighing is None:
        return f"Inputs: {_specs(reference.inputs)}. Outputs: {_specs(reference.outputs)}."
    weights = reference.weighing.weights
    cases = (
        f"- {case} (weight {weights[case]:g}): inputs {_specs(each.inputs)}; outputs {_specs(each.outputs)}"
        for case, each in reference.cases.items()
    )
    return "\n".join(
        [
            f"The program is called in {counted(len(weights), 'case')}:",
            *cases,
            "One ModelNew, with the same weights, serves all of them in turn. It must be correct in every case, and it may "
            "choose a kernel by the shapes and dtypes of its inputs. Nothing may depend on the shapes of earlier calls.",
            f"The speedup that counts is the {objective_text(reference.weighing)}.",
        ]
    )


def _specs(specs: Iterable[TensorSpec]) -> str:
    return ", ".join(map(str, specs))


def _facts(reference: Reference) -> Iterator[str]:
    """The facts about the reference in one case, one per line."""
    timed = " for forward with backward, which is what is timed" if reference.backward else ""
    facts = [
        f"eager PyTorch takes {reference.eager.latency_ms:.4g} ms{timed}",
        *_roofline_facts(reference.roofline, reference.eager.latency_ms, reference.device),
        *_error_facts(reference),
    ]
    yield from (f"- {fact}" for fact in facts)
    yield from _profile_of(reference)


def _device_facts(device: Device) -> Iterator[str]:
    processor = "core" if device.kind == "cpu" else "streaming multiprocessor"
    processors = counted(device.processors, processor)
    threads = device.threads and f"; a candidate gets {counted(device.threads, 'OpenMP thread')}"
    yield f"{device.name} ({device.architecture}), {processors}{threads or ''}"
    if device.features:
        yield f"instruction sets: {', '.join(device.features)}"
    smaller = " with arrays far beyond the caches, more with smaller ones"
    at_least = dict.fromkeys(device.unconfirmed, "at least ")
    bandwidth = f"measured bandwidth {at_least.get(MEMORY, '')}{device.bandwidth_gb_s:.0f} GB/s{smaller if device.bandwidths_gb_s else ''}"
    yield f"memory {device.memory_gb:g} GB, {bandwidth} (read plus written)"
    caches = (("L1 data", device.l1_kb), ("L2", device.l2_kb))
    sizes = [f"{name} cache {size:g} KB per core" for name, size in caches if size]
    yield ", ".join([*sizes, f"last-level cache {device.last_level_cache_mb:.0f} MB"])
    rates = ", ".join(
        f"{kind} {at_least.get(kind, '')}{rate:.3g} TFLOP/s"
        for kind, rate in device.peak_tflop_s.items()
    )
    by = f" by {device.blas}" if device.blas else ""
    yield f"measured peak of a matrix product{by}: {rates}"
    if device.shared_memory_kb:
        yield f"shared memory per block at most {device.shared_memory_kb:.0f} KB"
    if device.launch_us:
        yield f"launching a kernel from PyTorch costs about {device.launch_us:.1f} us"


def _roofline_facts(roofline: Roofline, eager_ms: float, device: Device) -> Iterator[str]:
    yield (
        f"least memory traffic {roofline.least_bytes / 1e6:.1f} MB: {roofline.memory_ms:.4g} ms at the "
        f"measured bandwidth{_own_bandwidth(roofline, device)}"
    )
    yield (
        "no matrix products or convolutions"
        if not roofline.flops
        else f"{roofline.flops / 1e9:.4g} GFLOP in matrix products and convolutions: {roofline.compute_ms:.4g} ms "
        f"at the measured {roofline.arithmetic} peak{_split(roofline.arithmetic)}"
    )
    if not roofline.floor_ms:
        yield "no roofline is known"
        return
    if not roofline.is_known(eager_ms):
        yield f"the roofline is unknown: {why_unknown(roofline, 'eager mode')}"
        return
    yield (
        f"so the roofline is about {roofline.floor_ms:.4g} ms, {bound_text(roofline)}; eager is "
        f"{eager_ms / roofline.floor_ms:.1f} times that"
    )


def _own_bandwidth(roofline: Roofline, device: Device) -> str:
    """The bandwidth that the roofline uses, on a CPU, where it depends on the size: caches hold small data."""
    if not (roofline.memory_ms and device.bandwidths_gb_s):
        return ""
    return f" for data of this size, {roofline.least_bytes / roofline.memory_ms / 1e6:.0f} GB/s"


def _split(arithmetic: str) -> str:
    """What a name such as `bf16x3` means; nothing for others."""
    narrow, _, parts = arithmetic.partition("x")
    return f" (float32 products made of {parts} in {narrow})" if parts else ""


def _error_facts(reference: Reference) -> Iterator[str]:
    """The allowed error of each output; identical statements appear once."""
    stated = [
        f"the {spec.dtype} output must be equal"
        if budget is None
        else f"relative RMS error at most {budget:.2g} in {spec.dtype}"
        for spec, budget in zip(reference.outputs, reference.error_budgets, strict=False)
    ]
    gradients = reference.error_budgets[len(reference.outputs) :]
    # Above 1 are the budgets of gradients that are nothing but rounding.
    if budgets := [budget for budget in gradients if budget is not None and budget < 1]:
        largest = f" to {max(budgets):.2g}" if max(budgets) > min(budgets) else ""
        stated.append(f"relative RMS error at most {min(budgets):.2g}{largest} in each gradient")
    if stated:
        yield f"accuracy against the reference in float64: {'; '.join(dict.fromkeys(stated))}"
    if any(spec.dtype == "float32" for spec in reference.outputs):
        yield f"so, by the chosen precision {reference.precision}, {_FITTING[reference.precision]}"


def _profile_of(reference: Reference) -> list[str]:
    """Where the time of eager PyTorch goes, with the steps as a nested list."""
    if reference.profiled is None:
        return []
    first, *lines = profile_lines(reference.profiled)
    return [
        f"- eager's {first}",
        *(f"  {line}" if line.startswith("- ") else f"- {line}" for line in lines),
    ]
