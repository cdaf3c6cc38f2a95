# The demo in a container:
#   docker build --tag priormatch .                              for CPUs
#   docker build --tag priormatch --build-arg DEVICE=cuda .      for NVIDIA GPUs
#   docker run --rm priormatch                                   runs the demo
# docs/install.md shows how to keep its results, and how to run other verbs.
FROM python:3.12-slim

# cpu or cuda. PyPI's torch for Linux brings CUDA's libraries, so the host needs only the driver and its container toolkit.
ARG DEVICE=cpu
ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

# Triton compiles its launchers with the C compiler.
RUN case "$DEVICE" in \
        cpu) ;; \
        cuda) apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* ;; \
        *) echo "DEVICE=$DEVICE: give cpu or cuda" >&2; exit 1 ;; \
    esac

# torch first: its layer stays cached when the sources change.
COPY pyproject.toml .ci/setup_venv.py /source/.ci/
RUN cd /source/.ci && python -c "import setup_venv as s; from pathlib import Path; print(s.torch_requirement(Path('pyproject.toml')))" > torch.txt \
    && if [ "$DEVICE" = cuda ]; then pip install --requirement torch.txt; \
       else pip install --index-url "$(python -c 'import setup_venv; print(setup_venv.CPU_INDEX)')" --requirement torch.txt; fi

COPY pyproject.toml README.md LICENSE /source/
COPY recipes /source/recipes
COPY src /source/src
RUN pip install "/source[demo]" && priormatch --version

# Any user may run it; caches need a place to write and a name.
ENV HOME=/tmp USER=user
RUN mkdir --mode=1777 /work
WORKDIR /work
ENTRYPOINT ["priormatch"]
CMD ["demo"]
