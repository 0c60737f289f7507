# scalerl with libtorch, in an image that needs nothing else: docker build -t scalerl .
#   docker run --rm scalerl fit /data/log.csv
#   docker run --rm --gpus all scalerl doctor          (built with --build-arg KIND=--cuda)
# The first stage compiles, the second has the archive of `make dist` installed by its own installer.

FROM rust:1.95-bookworm AS build
# Debian keeps one version of a package: pinning it would break the build with the next fix.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /scalerl
COPY . .
RUN make dist

FROM debian:bookworm-slim
# libgomp: libtorch's threads. bubblewrap: programs in answers are only run in a sandbox.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates libgomp1 libstdc++6 python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /scalerl/dist /tmp/dist
ENV XDG_CACHE_HOME=/opt/cache OMP_WAIT_POLICY=passive PIP_NO_CACHE_DIR=1
# --cpu, or --cuda for machines with an NVIDIA driver: a build sees no driver, so it is said here.
ARG KIND=--cpu
RUN sh /tmp/dist/install.sh --prefix /usr/local /tmp/dist/scalerl-*-linux-x86_64.tar.gz \
    && rm -r /tmp/dist \
    && scalerl setup "$KIND" \
    && scalerl doctor \
    && useradd --create-home --uid 1000 scalerl \
    && chown -R scalerl: /opt/cache
USER 1000
WORKDIR /home/scalerl
ENTRYPOINT ["scalerl"]
CMD ["--help"]
