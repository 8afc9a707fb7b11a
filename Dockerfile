# opsmith in a container, on a CPU or with CUDA:
#
#     docker build -t opsmith .
#     docker build -t opsmith:cuda --build-arg BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04 \
#         --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
#     docker run --rm -v "$PWD":/work opsmith check relu.py --task relu.default
#     docker run --rm --gpus all -v "$PWD":/work opsmith:cuda run --backend my_kernels --device cuda
#
# The sandbox needs user namespaces. Where Docker's profile forbids them, `opsmith doctor` says what is missing, and
# `--security-opt seccomp=unconfined` allows them.
ARG BASE=ubuntu:24.04
FROM ${BASE}

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        python3 python3-dev python3-venv g++ bubblewrap \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/opsmith \
    && /opt/opsmith/bin/pip install --no-cache-dir --index-url ${TORCH_INDEX} 'torch>=2.11,<2.14'
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN /opt/opsmith/bin/pip install --no-cache-dir /source && rm -rf /source

ENV PATH=/opt/opsmith/bin:$PATH
WORKDIR /work
ENTRYPOINT ["opsmith"]
CMD ["--help"]
