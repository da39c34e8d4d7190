#!/usr/bin/env python3
"""Kernel traces of a data-parallel job, as Kineto writes them, with a known truth: for tests and benchmarks.

Ranks train together: every step is a forward and a backward pass of layers, gradient buckets all-reduced beside the backward pass
on a stream of their own, and an optimizer step. A collective begins on each rank when that rank gets there and ends on all of them
at once. Each rank's times are then written on a clock of its own (offset and drift).

    make_traces.py OUT --ranks 8 --steps 5 --layers 12 --offset-us 500 --drift-ppm 20 --fault RANK:KIND[:FACTOR]

Faults: precision (fp32 matrix kernels), unaligned (shapes of 4095), copies (extra device copies), slow (one kernel takes FACTOR times
as long), clocks (all kernels do), host (FACTOR ms of host code a step), loader (the same in the data loader), none.
OUT/truth.json says what is true. Every number follows from --seed."""
import argparse
import gzip
import json
import os
import random

BASE_NS = 1767225600_000000000  # as Kineto: the wall clock's quarter of a year
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
GEMM_FP32 = "ampere_sgemm_128x64_tn"
GEMM_ODD = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align1>(cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align1::Params)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::gelu>"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMPUTE_STREAM, COMM_STREAM = 7, 20


class Clock:
    """The rank's clock: true nanoseconds to what it reads."""

    def __init__(self, offset_ns, drift_ppm):
        self.offset, self.drift = offset_ns, drift_ppm * 1e-6

    def read(self, true_ns):
        return int(true_ns + self.offset + self.drift * true_ns)


class RankTrace:
    def __init__(self, path, rank, args, clock):
        self.rank, self.args, self.clock = rank, args, clock
        self.file = gzip.open(path, "wt", compresslevel=1) if path.endswith(".gz") else open(path, "w")
        ranks = list(range(args.ranks))
        info = {"backend": "nccl", "rank": rank, "world_size": args.ranks, "pg_count": 1,
                "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": args.ranks, "ranks": ranks}]}
        self.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      "id": 0, "name": "%s", "totalGlobalMem": 150110011392,\n'
                   '      "computeMajor": 9, "computeMinor": 0, "numSms": 132\n    }\n  ],\n  "record_shapes": 1,\n  "host_name": "node-%d",\n'
                   '  "distributedInfo": %s,\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": %d,\n  "traceEvents": ['
                   % (args.device, rank // 8, json.dumps(info), BASE_NS))
        self.first, self.correlation, self.events = True, 0, 0
        self.pid, self.tid = 1000 + rank, 5000 + rank

    def write(self, text):
        self.file.write(text)

    def event(self, category, name, pid, tid, start, duration, arguments):
        """One event at true time `start`; the rank's clock is what is written."""
        begin = self.clock.read(start)
        length = self.clock.read(start + duration) - begin
        self.events += 1
        self.write('%s\n  {\n    "ph": "X", "cat": "%s", "name": "%s", "pid": %s, "tid": %s,\n    "ts": %d.%03d, "dur": %d.%03d,\n'
                   '    "args": {\n      %s\n    }\n  }' % ("" if self.first else ",", category, name, pid, tid, begin // 1000, begin % 1000,
                                                             length // 1000, length % 1000, arguments))
        self.first = False

    def flow(self, correlation, launch, start):
        for phase, pid, tid, at in (("s", self.pid, self.tid, launch), ("f", 0, COMPUTE_STREAM, start)):
            moment = self.clock.read(at)
            self.events += 1
            self.write(',\n  {\n    "ph": "%s", "id": %d, "pid": %d, "tid": %d, "ts": %d.%03d,\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }'
                       % (phase, correlation, pid, tid, moment // 1000, moment % 1000))

    def close(self):
        self.write('\n  ],\n  "traceName": "rank-%d.json"\n}\n' % self.rank)
        self.file.close()


class RankJob:
    """What one rank does: a host thread that launches, two streams that run."""

    def __init__(self, trace, args, fault):
        self.trace, self.args, self.fault = trace, args, fault
        self.random = random.Random(args.seed * 1000 + trace.rank)
        self.host = self.stream = self.comm = 1_000_000 + self.random.randrange(20_000)
        self.graph = None

    def kernel(self, op, dims, types, name, duration, grid, calls=1):
        """Launched by an operator, run in order on the compute stream."""
        trace = self.trace
        if self.fault[0] == "clocks":
            duration *= self.fault[1]
        for _ in range(calls):
            trace.correlation += 1
            length = int(duration * self.random.uniform(0.98, 1.02))
            if self.args.graphs:
                launch, correlation, extra = self.graph[1], self.graph[0], ', "graph node id": %d' % trace.correlation
            else:
                launch, correlation, extra = self.host + 1500, trace.correlation, ""
                trace.event("cpu_op", op, trace.pid, trace.tid, self.host, 5000,
                            '"External id": %d,"Record function id": 0, "Ev Idx": %d, "Input Dims": %s, "Input type": %s'
                            % (trace.correlation, trace.events, dims, types))
                trace.event("cuda_runtime", "cudaLaunchKernel", trace.pid, trace.tid, launch, 2500,
                            '"External id": %d, "cbid": 211, "correlation": %d' % (trace.correlation, correlation))
                self.host += 5500
            start = max(self.stream + 800, launch + 4000)
            trace.event("kernel", name, 0, COMPUTE_STREAM, start, length,
                        '"External id": %d,\n      "queued": 0, "device": 0, "context": 1,\n      "stream": %d, "correlation": %d,\n'
                        '      "registers per thread": 168, "shared memory": 213320,\n      "blocks per SM": 1.0,\n      "warps per SM": 12.0,\n'
                        '      "grid": [%d, 1, 1],\n      "block": [384, 1, 1],\n      "est. achieved occupancy %%": 19%s'
                        % (0 if self.args.graphs else trace.correlation, COMPUTE_STREAM, correlation, grid, extra))
            if not self.args.graphs:
                trace.flow(correlation, launch, start)
            self.stream = start + length

    def gemm(self, op, m, n, k):
        kind, factor = self.fault
        width = 4095 if kind == "unaligned" else n
        dims = "[[%d, %d], [%d, %d]]" % (m, k, k, width)
        flops = 2.0 * m * n * k
        best = flops / (989.4e12 * 0.7) * 1e9
        if kind == "precision":
            self.kernel(op, dims, '["float", "float"]', GEMM_FP32, flops / (67e12 * 0.8) * 1e9, 2048)
        elif kind == "unaligned":
            self.kernel(op, dims, '["c10::BFloat16", "c10::BFloat16"]', GEMM_ODD, best * 2.5, 1024)
        else:
            self.kernel(op, dims, '["c10::BFloat16", "c10::BFloat16"]', GEMM, best * (factor if kind == "slow" else 1), 132)

    def elementwise(self, op, name, m, n):
        self.kernel(op, "[[%d, %d]]" % (m, n), '["c10::BFloat16"]', name, 4.0 * m * n / (4.8e12 * 0.8) * 1e9, m * n // 4096)

    def layer(self, backward):
        m, n = self.args.tokens, self.args.width
        if self.args.graphs:
            self.trace.correlation += 1
            self.graph = (self.trace.correlation, self.host)
            self.trace.event("cuda_runtime", "cudaGraphLaunch", self.trace.pid, self.trace.tid, self.host, 9000,
                             '"External id": 0, "cbid": 311, "correlation": %d' % self.trace.correlation)
            self.host += 10_000
        self.elementwise("aten::native_layer_norm", NORM, m, n)
        for _ in range(2 if not backward else 4):
            self.gemm("aten::mm", m, n, n)
        self.elementwise("aten::gelu", GELU, m, n)
        if self.fault[0] == "copies" and not backward:
            self.kernel("aten::copy_", "[[%d, %d], [%d, %d], []]" % (m, n, m, n), '["c10::BFloat16", "c10::BFloat16", "Scalar"]', COPY,
                        4.0 * m * n / (4.8e12 * 0.8) * 1e9, m * n // 512, calls=int(self.fault[1]))

    def host_code(self, name, milliseconds):
        length = int(milliseconds * 1e6)
        if name:
            self.trace.event("user_annotation", name, self.trace.pid, self.trace.tid, self.host, length, '"External id": 0')
        self.host += length


def collective(jobs, args, seq, after_compute):
    """All ranks' kernels of one all-reduce: each begins when its rank is there, all end together."""
    elements = args.layers * args.width * args.width * 6 // args.buckets
    duration = elements * 2 * 2 / args.bus_gb_per_s  # ns
    starts = []
    for job in jobs:
        launch = job.host if not args.graphs else job.host
        job.trace.correlation += 1
        number = job.trace.correlation
        groups = ('"Collective name": "allreduce", "In msg nelems": %d, "Out msg nelems": %d, "Group size": %d, "dtype": "BFloat16",'
                  ' "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", "Process Group Description": "default_pg",'
                  ' "Process Group Ranks": "%s"%s' % (elements, elements, args.ranks, ranks_text(args.ranks), "" if args.no_seq else ', "Seq": %d' % seq))
        job.trace.event("cpu_op", "record_param_comms", job.trace.pid, job.trace.tid, launch, 6000,
                        '"External id": %d,"Record function id": 0, %s' % (number, groups))
        job.trace.event("cuda_runtime", "cudaLaunchKernelExC", job.trace.pid, job.trace.tid, launch + 1000, 3000,
                        '"External id": %d, "cbid": 430, "correlation": %d' % (number, number))
        job.host += 7000
        start = max(job.comm + 1000, launch + 5000, after_compute[job.trace.rank])
        starts.append((job, number, start, groups))
    end = max(start for _, _, start, _ in starts) + duration
    for job, number, start, groups in starts:
        own_end = end + job.random.randrange(0, 2000)
        job.trace.event("kernel", NCCL, 0, COMM_STREAM, start, own_end - start,
                        '"External id": %d,\n      "queued": 0, "device": 0, "context": 1,\n      "stream": %d, "correlation": %d,\n'
                        '      "registers per thread": 96, "shared memory": 80000,\n      "grid": [24, 1, 1],\n      "block": [544, 1, 1], %s'
                        % (number, COMM_STREAM, number, groups))
        job.comm = own_end


def ranks_text(count):
    listed = ", ".join(str(rank) for rank in range(min(count, 30)))
    return "[%s%s]" % (listed, ", ..." if count > 30 else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--bus-gb-per-s", type=float, default=300)
    parser.add_argument("--offset-us", type=float, default=0, help="clocks are off by up to so much")
    parser.add_argument("--drift-ppm", type=float, default=0)
    parser.add_argument("--fault", default="0:none")
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--graphs", action="store_true", help="layers are CUDA graphs")
    parser.add_argument("--no-seq", action="store_true", help="collectives without a sequence number, as before PyTorch 2.12")
    parser.add_argument("--on-demand", action="store_true", help="without ProfilerStep marks: the optimizer's only")
    parser.add_argument("--plain", action="store_true", help="without gzip")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    parts = args.fault.split(":")
    faulty, kind = int(parts[0]), parts[1]
    factor = float(parts[2]) if len(parts) > 2 else {"slow": 2.0, "clocks": 1.3, "host": 4.0, "loader": 4.0, "copies": 10}.get(kind, 1.0)
    chance = random.Random(args.seed)
    jobs, clocks = [], []
    for rank in range(args.ranks):
        offset = 0 if rank == 0 else int(chance.uniform(-1, 1) * args.offset_us * 1000)
        drift = 0 if rank == 0 else chance.uniform(-1, 1) * args.drift_ppm
        clocks.append({"rank": rank, "offset_us": offset / 1000, "drift_ppm": drift})
        path = os.path.join(args.out, "rank-%d.json%s" % (rank, "" if args.plain else ".gz"))
        jobs.append(RankJob(RankTrace(path, rank, args, Clock(offset, drift)), args, (kind, factor) if rank == faulty else ("none", 1)))
    seq = 100
    for step in range(args.steps):
        begins = {job.trace.rank: job.host for job in jobs}
        for job in jobs:
            job.host_code("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", factor if job.fault[0] == "loader" else 0.05)
            if job.fault[0] == "host":
                job.host_code("", factor)
            for _ in range(args.layers):
                job.layer(backward=False)
        for bucket in range(args.buckets):
            for job in jobs:
                for _ in range(args.layers // args.buckets):
                    job.layer(backward=True)
            seq += 1
            collective(jobs, args, seq, {job.trace.rank: job.stream for job in jobs})
        for job in jobs:
            job.stream = max(job.stream, job.comm)  # the optimizer waits for the gradients
            begin = job.host
            if args.graphs:
                job.graph = (job.trace.correlation + 1, job.host)
                job.trace.correlation += 1
            job.kernel("aten::_fused_adam_", "[[[%d]]]" % (args.width * args.width), '["TensorList"]', ADAM, 300_000, 4000)
            job.trace.event("user_annotation", "Optimizer.step#AdamW.step", job.trace.pid, job.trace.tid, begin, max(job.host - begin, 6000),
                            '"External id": 0')
            job.host = max(job.host, begin + 6500, job.stream)  # loss.item(): the host waits for the GPU
            if not args.on_demand:
                job.trace.event("user_annotation", "ProfilerStep#%d" % (10 + step), job.trace.pid, job.trace.tid,
                                begins[job.trace.rank], job.host - begins[job.trace.rank], '"External id": 0')
    for job in jobs:
        job.trace.close()
    events = sum(job.trace.events for job in jobs)
    with open(os.path.join(args.out, "truth.txt"), "w") as out:
        json.dump({"fault": kind, "rank": faulty if kind != "none" else None, "factor": factor, "clocks": clocks, "events": events}, out)
    print("%d ranks, %d events" % (args.ranks, events))


main()
