import { describe, expect, it } from 'vitest';
import { byDifference, compareGaps, compareKernels, comparedRank, compareParts, decodeSummary, difference, incomparable, peersOf, shortKernel } from './kernel_profile';
import { parsePlace } from './url';
import kRecorded from '../../../tests/web/profile_summary.json';

// What `lockstep analyze --json` said of four ranks, of which rank 43 runs kernels for operands aligned to 1.
const recorded = decodeSummary({ state: 'ready', summary: kRecorded }).summary!;

describe('the summary of a kernel profile', () => {
  it('is read whatever is missing', () => {
    expect(decodeSummary(null)).toEqual({ state: 'none', error: '', summary: null });
    expect(decodeSummary({ state: 'failed', error: 'no trace', summary: kRecorded }).summary).toBe(null);
    const bare = decodeSummary({ state: 'ready', summary: { ranks: [{ rank: 3, kernels: [{}, { name: 'a' }] }, {}, 7] } }).summary!;
    expect(bare.ranks.map((rank) => [rank.rank, rank.kernels.length])).toEqual([[3, 1]]);
    expect(compareKernels(bare, 3)[0]!.peers).toBe(null);
  });
  it('puts what a rank runs and the others do not first, what they run instead last', () => {
    expect(comparedRank(recorded, null)).toBe(43);
    const rows = byDifference(compareKernels(recorded, 43));
    expect(shortKernel(rows[0]!.name)).toBe('cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align1');
    expect(rows[0]!.name).toBe(recorded.kernel);
    expect(Math.round(difference(rows[0]!)! / 1e5)).toBe(119);
    expect(rows[0]!.peersCalls).toBe(0);
    expect(rows.slice(-2).map((row) => row.family).sort()).toEqual(['collective', 'matrix multiplication']);
  });
  it('compares whom the address names only where it was profiled', () => {
    expect(comparedRank(recorded, 41)).toBe(41);
    expect(comparedRank(recorded, 7)).toBe(43);
    expect(comparedRank({ ...recorded, culprits: [] }, 7)).not.toBe(7);
    expect(comparedRank({ ...recorded, ranks: [] }, 7)).toBe(null);
  });
  it('keeps kernels apart whose names differ beyond what is shown', () => {
    const long = (end: string): string => `void gemm<${'int, '.repeat(200)}${end}>()`;
    const kernels = [long('a'), long('b')].map((name) => ({ name, sum_us: 1 }));
    const known = decodeSummary({ state: 'ready', summary: { verdict: { kernel: long('b') }, ranks: [{ rank: 0, kernels }] } }).summary!;
    const rows = compareKernels(known, 0);
    expect(rows).toHaveLength(2);
    expect(rows.map((row) => row.name === known.kernel)).toEqual([false, true]);
    const place = parsePlace('/jobs/x/profiles/p', `?kernel=${encodeURIComponent(known.kernel)}`);
    expect(place).toMatchObject({ kernel: known.kernel });
  });
  it('sets a rank beside itself in another capture, and says where that means little', () => {
    const before = structuredClone(recorded);
    before.ranks = before.ranks.filter((rank) => rank.rank === 42).map((rank) => ({ ...rank, rank: 43 }));
    const peers = peersOf(recorded, 43, before);
    expect(peers.map((rank) => rank.rank)).toEqual([43]);
    expect(peersOf(recorded, 41, before)).toEqual(before.ranks);
    expect(byDifference(compareKernels(recorded, 43, peers))[0]!.name).toBe(recorded.kernel);
    expect(incomparable(recorded, before)).toBe('');
    expect(incomparable(recorded, { ...before, worldSize: 8 })).toBe('another number of ranks: 64 here, 8 there');
  });
  it('does not take a kernel that was not sent for one that did not run', () => {
    const cut = structuredClone(recorded);
    for (const rank of cut.ranks) if (rank.rank !== 43) rank.kernelNames = 99;
    expect(compareKernels(cut, 43).find((row) => row.name === cut.kernel)!.peers).toBe(null);
  });
  it('sets parts of a step and gaps beside the median of the others', () => {
    const parts = new Map(compareParts(recorded, 43).map((row) => [row.what, Math.round(difference(row)! / 1e5)]));
    expect(parts.get('compute')).toBe(71);
    expect(parts.get('waiting for others in collectives')).toBe(-31);
    expect(compareGaps(recorded, 43).map((gap) => gap.dataLoading)).toContain(true);
    expect(compareParts(recorded, 7)).toEqual([]);
  });
});

describe('a kernel in short', () => {
  it('is what it is called, and what it does', () => {
    expect(shortKernel('nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT')).toBe('nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT');
    expect(shortKernel('ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)')).toBe('ncclDevKernel_AllReduce_Sum_bf16_RING_LL');
    expect(shortKernel('void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::gelu>')).toBe('vectorized_elementwise_kernel (gelu)');
    expect(shortKernel('void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>')).toBe('multi_tensor_apply_kernel (FusedAdam)');
    expect(shortKernel('void f<')).toBe('f');
    expect(shortKernel('')).toBe('');
  });
});
