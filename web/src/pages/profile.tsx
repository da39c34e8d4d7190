// One kernel profile: what is wrong in one sentence, then every kernel of every rank on one axis, then the numbers behind it. While it is
// not analysed yet, where it stands and what is missing.
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { clean, count } from '../base/format';
import { comparedRank, type ProfileSummary } from '../base/kernel_profile';
import { longestOf } from '../base/kernel_timeline';
import { line } from '../base/poll';
import { stepsText } from '../base/profile';
import { go, jobPlace, profilesPlace, type ProfilePlace } from '../base/url';
import { fineDuration, fit } from '../base/view';
import { Frame, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { useMoving } from './moving';
import { ProfileAnswer } from './profile_answer';
import { ProfileChart } from './profile_chart';
import { useProfileData, viewOf } from './profile_data';
import { useProfileKeys } from './profile_keys';
import { ProfileTables } from './profile_tables';

// Of a kernel that is looked for: so many times its length is shown.
const kAround = 12;

export function ProfilePage({ place }: { place: ProfilePlace }) {
  const columns = useSignal(0);
  const data = useProfileData(place, columns.value);
  const { value: overview } = data.overview;
  const summary = data.answer.value?.summary ?? null;
  const length = overview?.length ?? 0;
  const asked = overview && viewOf(place, overview);
  const { view, move } = useMoving(place, length, asked, (now, to) => ({ ...now, from: to?.from ?? null, to: to?.to ?? null, step: null }));

  const rank = summary ? comparedRank(summary, place.rank) : place.rank;
  const open = useMemo(() => new Set(place.open === null ? summary?.culprits.slice(0, 1) ?? [] : numbersOf(place.open)), [place.open, summary]);
  const toggle = (which: number): void => {
    const next = new Set(open);
    if (!next.delete(which)) next.add(which);
    go({ ...place, open: [...next].sort((a, b) => a - b).join(',') }, true);
  };
  // What is selected already is cleared, unless it is meant of another rank.
  const pickKernel = (kernel: string, of: number | null = null): void => {
    const isSame = kernel === place.kernel && (of === null || of === rank);
    go({ ...place, kernel: isSame ? '' : kernel, ...(of === null ? {} : { rank: of }) });
  };
  // Leads to the longest of a kernel, on the rank that is compared where it has one.
  const find = (kernel: string): void => {
    const found = (data.tile.value && longestOf(data.tile.value, kernel, rank)) ?? (overview && longestOf(overview, kernel, rank));
    if (!found) return;
    const size = (found.to - found.from) * kAround;
    const near = fit({ from: found.from - size / 2, to: found.to + size / 2 }, length);
    go({ ...place, ...near, step: null, kernel, open: [...new Set([...open, found.rank])].sort((a, b) => a - b).join(',') });
    document.getElementById('kernels')?.scrollIntoView({ block: 'nearest' });
  };
  useProfileKeys({ place, view, length, move, guilty: summary?.kernel ?? '', pickKernel });

  const hosts = useMemo(() => hostsOf(data.profile.value?.ranks ?? [], summary), [data.profile.value, summary]);
  const hostOf = (which: number): string => hosts.get(which) ?? '';
  const name = clean(place.job);
  const what = data.profile.value ? stepsText(data.profile.value) : clean(place.capture);
  document.title = `Profile of ${name}, ${what} · Lockstep`;
  const crumbs: Crumb[] = [
    { label: 'Fleet', to: { page: 'fleet' } },
    { label: name, to: jobPlace(place.job) },
    { label: 'Profiles', to: profilesPlace(place.job) },
    { label: what, to: place },
  ];
  if (data.refused.value && !data.profile.value) {
    return (
      <Frame crumbs={crumbs}>
        <section class="card"><h2 class="sentence" role="alert">{data.refused.value}</h2><p class="muted">The page Profiles lists those of this job.</p></section>
      </Frame>
    );
  }
  return (
    <Frame crumbs={crumbs} state={overview && <span>{line.value.lostSince !== null && '◌ no answer · '}<b>{fineDuration(length)}</b> of {count(overview.ranks.length)} ranks</span>}>
      {data.profile.value
        ? <ProfileAnswer {...{ place, data, profile: data.profile.value, summary, steps: overview?.steps ?? [], rank }} onKernel={(kernel) => go({ ...place, kernel })} />
        : <Loading what={`profile ${what}`} />}
      {summary && <ProfileChart {...{ place, data, view, length, open, rank, hostOf, columns, move, toggle, pickKernel }} culprits={summary.culprits} />}
      {summary && <ProfileTables {...{ place, data, summary, rank, pickKernel, find }} />}
    </Frame>
  );
}

function hostsOf(ranks: readonly { rank: number; host: string }[], summary: ProfileSummary | null): Map<number, string> {
  const known = new Map((summary?.ranks ?? []).map((one) => [one.rank, one.host]));
  for (const { rank, host } of ranks) if (host) known.set(rank, host);
  return known;
}

// "0-2,7" -> 0, 1, 2, 7; no more than a picture can hold.
function numbersOf(ranks: string): number[] {
  const found: number[] = [];
  for (const [, from, to] of ranks.matchAll(/(\d+)(?:-(\d+))?/g)) {
    for (let rank = Number(from); rank <= Number(to ?? from) && found.length < 256; rank += 1) found.push(rank);
  }
  return found;
}
