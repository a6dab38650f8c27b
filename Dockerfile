# daoyou in a container: docker build -t daoyou . ; docs/packages.md says how to run it.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN cargo build --locked --profile dist --package daoyou

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin daoyou \
    && install -d -m 0700 -o daoyou -g daoyou /data
COPY --from=build /build/target/dist/daoyou /usr/local/bin/daoyou
USER daoyou
ENV DAOYOU_HOME=/data
WORKDIR /data
VOLUME /data
EXPOSE 18790
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["daoyou", "status", "--ready"]
ENTRYPOINT ["daoyou"]
CMD ["gateway", "--no-cli"]
