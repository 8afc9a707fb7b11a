from collections import OrderedDict

from torch import nn


class ModelNew(nn.Sequential):
    def __init__(self, features_in, hidden, features_out):
        up, down = nn.Linear(features_in, hidden), nn.Linear(hidden, features_out)
        super().__init__(OrderedDict(up=up, act=nn.GELU(), down=down))
