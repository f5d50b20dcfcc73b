# The one binary, and what an agent hands to nodes. Build from a clean clone: docker build -t muster .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ENV SQLX_OFFLINE=true
ARG MUSTER_COMMIT=unknown
RUN images/install-deps && images/ipxe/build && cargo build --locked --release -p muster && node/build-static

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates ipmitool slurm-client munge iperf3 chrony && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/release/muster /usr/local/bin/muster
COPY --from=build /src/target/x86_64-unknown-linux-gnu/release/muster-node /usr/share/muster/muster-node
COPY --from=build /src/.cache/ipxe /usr/share/muster/ipxe
RUN useradd --system --home-dir /var/lib/muster --create-home muster
USER muster
ENTRYPOINT ["muster"]
