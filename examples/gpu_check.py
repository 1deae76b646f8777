"""Check a GPU in about a minute: same results as on the CPU, no synchronisation, graph capture, time of a step."""

import time

import torch

import grokfast


def train(device: str, filter: grokfast.Filter, steps: int = 20, **options: object) -> torch.Tensor:
    """The weights after a few steps, with the same gradients on every device."""
    param = torch.nn.Parameter(torch.zeros(1000, device=device))
    optimizer = torch.optim.AdamW([param], lr=1e-2, **options)  # type: ignore[arg-type]
    grokfast.attach(optimizer, filter)
    for step in range(steps):
        param.grad = torch.randn(1000, generator=torch.Generator().manual_seed(step)).to(device)
        optimizer.step()
    return param.detach().cpu()


def check_equality() -> None:
    for filter in (grokfast.EMA(), grokfast.MA(window_size=5), grokfast.EMA(state_dtype=torch.bfloat16)):
        error = (train("cuda", filter) - train("cpu", filter)).abs().max().item()
        # A bf16 state is rounded with other random numbers on another device.
        limit = 1e-4 if getattr(filter, "state_dtype", None) is None else 1e-2
        print(f"{'ok' if error < limit else 'WRONG'}: {filter} differs from the CPU by {error:.1e}")


def check_no_waiting(scaled: bool) -> None:
    param = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
    optimizer = torch.optim.AdamW([param], lr=1e-2, fused=True)
    handle = grokfast.attach(optimizer, grokfast.EMA())
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)
    param.grad = torch.randn(1000, device="cuda")
    optimizer.step()
    grad = torch.randn(1000, device="cuda")
    torch.cuda.synchronize()
    for _ in range(3):
        scaler.scale((param * grad).sum()).backward()
        torch.cuda.set_sync_debug_mode("error")
        try:
            scaler.step(optimizer)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        scaler.update()
        optimizer.zero_grad()
    print(f"ok: {handle.step} steps without synchronisation{' under a GradScaler' if scaled else ''}")


def check_capture() -> None:
    param = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
    optimizer = torch.optim.AdamW([param], lr=1e-2, capturable=True)
    handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.9, lamb=2.0))
    param.grad = torch.ones(1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
            param.grad.fill_(1.0)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    param.grad.fill_(1.0)
    graph.replay()
    torch.cuda.synchronize()
    good = torch.allclose(param.grad, torch.full_like(param, 3.0)) and handle.slow(param) is not None
    print(f"{'ok' if good else 'WRONG'}: a captured step filters when it is replayed")


def measure_time(tensors: int = 160, size: int = 160_000) -> None:
    params = [torch.nn.Parameter(torch.zeros(size, device="cuda")) for _ in range(tensors)]
    for p in params:
        p.grad = torch.randn_like(p) * 1e-20
    seconds: dict[str, float] = {}
    for name in ("plain", "filtered"):
        optimizer = torch.optim.SGD(params, lr=1e-30)
        if name == "filtered":
            grokfast.attach(optimizer, grokfast.EMA(lamb=1e-6))
        for turn in range(60):
            if turn == 10:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            optimizer.step()
        torch.cuda.synchronize()
        seconds[name] = (time.perf_counter() - begin) / 50
    averages = [torch.zeros_like(p) for p in params]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(50):  # the same arithmetic, one tensor after another
        for p, average in zip(params, averages, strict=True):
            average.mul_(0.98).add_(p.grad, alpha=0.02)
            p.grad.add_(average, alpha=1e-6)
    torch.cuda.synchronize()
    by_tensor = (time.perf_counter() - begin) / 50
    batched = seconds["filtered"] - seconds["plain"]
    print(f"time of a filter step: {batched * 1e3:.3f} ms; tensor by tensor: {by_tensor * 1e3:.3f} ms")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no GPU found: nothing was checked")
    else:
        check_equality()
        check_no_waiting(scaled=False)
        check_no_waiting(scaled=True)
        check_capture()
        measure_time()
