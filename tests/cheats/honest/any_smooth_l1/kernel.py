import torch


def smooth_l1_loss__default_kernel_impl(self, target, reduction=1, beta=1.0):
    distance = (self - target).abs()
    loss = torch.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta) if beta else distance
    match reduction:
        case 0:
            return loss
        case 1:
            return loss.mean()
        case _:
            return loss.sum()
