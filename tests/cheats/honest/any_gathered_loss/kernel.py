import torch


def nll_loss_forward__default_kernel_impl(self, target, weight, reduction, ignore_index):
    x = self if self.dim() == 2 else self[None]
    t = target.reshape(-1)
    kept = t != ignore_index
    chosen = torch.where(kept, t, 0)
    w = torch.ones_like(x[:, 0]) if weight is None else weight[chosen]
    w = w * kept
    loss = torch.where(kept, -x.gather(1, chosen[:, None])[:, 0] * w, 0.0)
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    if reduction == 0 and self.dim() == 2:
        return loss, zero
    total = w.sum()
    return (loss.sum() / total if reduction == 1 else loss.sum()), total
