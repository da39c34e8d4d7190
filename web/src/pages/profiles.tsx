// Kernel profiles of a job: a form that orders one, and where each rank of each stands.
import { useSignal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { api, paths, Refused } from '../base/api';
import { clean, clock, count, utc } from '../base/format';
import { useKeys } from '../base/hooks';
import { usePoll } from '../base/poll';
import { isRankChoice, stepsText, type Profile, type ProfileList } from '../base/profile';
import { serverUrl } from '../base/root';
import { analyzeCommand, copy, curl, shellWord } from '../base/share';
import { go, jobPlace, profilePlace, type ProfilesPlace } from '../base/url';
import { CopyButton } from '../widgets/copy_button';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { RankStates } from './rank_states';

const kRunningMs = 1_000;
const kQuietMs = 5_000;
const kStepsChoices = [1, 2, 5, 10, 20] as const;

const kAnalysis = new Map(Object.entries({ waiting: 'waits to be analysed', analysing: 'is being analysed', ready: 'analysed', failed: 'its analysis failed' }));

export function ProfilesPage({ place }: { place: ProfilesPlace }) {
  const known = useSignal<ProfileList | null>(null);
  const refused = useSignal<string | null>(null);
  const isRunning = (): boolean => known.value?.profiles.some((profile) => !profile.ended) ?? false;
  usePoll([place.job], async (signal) => { known.value = await api.profiles(place.job, signal); },
    (message) => { refused.value = message; }, () => (isRunning() ? kRunningMs : kQuietMs));
  useKeys((key) => {
    if (key === 'Escape') go(jobPlace(place.job));
    return key === 'Escape';
  });
  const name = clean(place.job);
  document.title = `Profiles of ${name} · Lockstep`;
  const crumbs = [{ label: 'Fleet', to: { page: 'fleet' } as const }, { label: name, to: jobPlace(place.job) }, { label: 'Profiles', to: place }];
  return (
    <Frame crumbs={crumbs}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!refused.value && <Order place={place} busy={isRunning()} ordered={(profile) => {
        known.value = { automatic: known.value?.automatic ?? false, profiles: [profile, ...(known.value?.profiles ?? [])] };
      }} />}
      {!known.value && !refused.value && <Loading what={`profiles of ${name}`} />}
      {known.value?.profiles.map((profile) => <ProfileCard key={profile.capture} job={place.job} profile={profile} />)}
      {known.value && known.value.profiles.length === 0 && (
        <p class="muted">No profile of this job yet. Its processes can be profiled where they were started with <code>lockstep run</code>.</p>
      )}
    </Frame>
  );
}

function Order({ place, busy, ordered }: { place: ProfilesPlace; busy: boolean; ordered: (profile: Profile) => void }) {
  const [ranks, setRanks] = useState(place.ranks);
  const [steps, setSteps] = useState(5);
  const [shapes, setShapes] = useState(false);
  const [stacks, setStacks] = useState(false);
  const [trouble, setTrouble] = useState('');
  const chosen = ranks.replace(/\s/g, '');
  const order = async (): Promise<void> => {
    try {
      ordered(await api.orderProfile(place.job, chosen, steps, shapes, stacks, new AbortController().signal));
      setTrouble('');
    } catch (error) {
      setTrouble(`Not ordered: ${error instanceof Refused ? error.message : 'the server does not answer.'}`);
    }
  };
  return (
    <section class="card" aria-label="Order a profile">
      <div class="chart-head">
        <h2>Which kernels do these ranks run?</h2>
        <Menu label="Menu of the order" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.profiles(place.job))) },
          { label: 'Copy as CLI', run: () => copy(`lockstep profile --server ${shellWord(serverUrl())} ${shellWord(place.job)} --ranks ${shellWord(chosen)} --steps ${steps} --wait`) },
        ]} />
      </div>
      <form class="controls" onSubmit={(event) => { event.preventDefault(); void order(); }}>
        <label>ranks
          <input type="text" value={ranks} aria-invalid={!isRankChoice(chosen)} placeholder="worst,median,0,17" onInput={(event) => setRanks(event.currentTarget.value)} />
        </label>
        <label>steps
          <select value={String(steps)} onChange={(event) => setSteps(Number(event.currentTarget.value))}>
            {kStepsChoices.map((choice) => <option key={choice} value={String(choice)}>{choice}</option>)}
          </select>
        </label>
        <label><input type="checkbox" checked={shapes} onChange={(event) => setShapes(event.currentTarget.checked)} /> shapes</label>
        <label><input type="checkbox" checked={stacks} onChange={(event) => setStacks(event.currentTarget.checked)} /> Python stacks</label>
        <button type="submit" class="primary" disabled={busy || !isRankChoice(chosen)}>Profile</button>
      </form>
      {busy && <p class="muted">One at a time: the profile below is under way.</p>}
      {trouble && <p role="alert">{trouble}</p>}
    </section>
  );
}

function ProfileCard({ job, profile }: { job: string; profile: Profile }) {
  const done = profile.ranks.filter((rank) => rank.state === 'done').length;
  const analyze = analyzeCommand(job, profile.capture);
  return (
    <section class="card" aria-label={`Profile ${profile.capture}`}>
      <div class="chart-head">
        <h2><PlaceLink to={profilePlace(job, profile.capture)}>{stepsText(profile)}</PlaceLink>: {profile.ended ? `${count(done)} of ${count(profile.ranks.length)} ranks profiled` : 'under way'}</h2>
        <p class="muted" aria-live="polite">
          <code>{profile.capture}</code> <span title={utc(profile.begun_unix_ns)}>{clock(profile.begun_unix_ns, true)}</span>
          {profile.by && profile.by !== 'person' && ` by ${profile.by}`}
          {kAnalysis.has(profile.analysis) && ` · ${kAnalysis.get(profile.analysis)}`}
        </p>
      </div>
      <RankStates {...{ job, profile }} />
      {done > 0 && (
        <p class="actions">
          <PlaceLink class="button" to={profilePlace(job, profile.capture)}>What they show</PlaceLink>
          <code class="muted">{analyze}</code> <CopyButton content={analyze} name={`Copy the command that analyses ${profile.capture}`} />
        </p>
      )}
    </section>
  );
}
