// How an inference service does: the sentence, the quantiles of each part of a request, the slowest requests.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import { clean, clock, count, duration, number, percent, utc } from '../base/format';
import { usePoll } from '../base/poll';
import { prefix, serverUrl } from '../base/root';
import type { Quantiles, Service, ServiceTime } from '../base/service';
import { copy, curl, shellWord } from '../base/share';
import { go, kServiceLastChoices, type ServicePlace } from '../base/url';
import { Frame } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { Table, type Column } from '../widgets/table';

const kEveryMs = 5_000;
const kWords: Record<ServiceTime, [string, string]> = {
  ttft: ['first token', 'from the request to its first token'],
  tpot: ['per further token', 'each token after the first'],
  queue: ['queue', 'before the engine took it'],
  prefill: ['prefill', 'reading the prompt'],
  decode: ['decode', 'writing the answer'],
  e2e: ['whole request', ''],
};

export function ServicePage({ place }: { place: ServicePlace }) {
  const service = useSignal<Service | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([place.service, place.last], async (signal) => { service.value = await api.service(place.service, place.last, signal); },
    (message) => { refused.value = message; }, () => kEveryMs);
  const name = clean(place.service);
  document.title = `${name} · Lockstep`;
  const known = service.value;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Services', to: { page: 'services' } }, { label: name, to: place }]} state={known && <State service={known} />}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!known && !refused.value && <Loading what={name} />}
      {known && !refused.value && (
        <>
          <section class="card verdict tone-quiet" aria-label="How it does">
            <p class="verdict-head">
              <span>{count(known.requests)} requests{known.cut && ', the newest that were looked at'}</span>
              <span>{known.source ? `from its ${known.source}` : 'it reports neither spans nor metrics'}</span>
            </p>
            <h2 class="sentence">{known.sentence || 'Nothing to say yet.'}</h2>
          </section>
          <Times place={place} service={known} />
          <Slowest service={known} />
        </>
      )}
    </Frame>
  );
}

function State({ service }: { service: Service }) {
  return (
    <>
      {service.requests_running !== null && <span>{count(service.requests_running)} running</span>}
      {service.requests_waiting !== null && <span>{count(service.requests_waiting)} waiting</span>}
      {service.kv_cache_share !== null && <span>KV cache {percent(service.kv_cache_share)}</span>}
      {service.completion_tokens_per_s !== null && <span><b>{number(service.completion_tokens_per_s)}</b> tokens/s</span>}
    </>
  );
}

function Times({ place, service }: { place: ServicePlace; service: Service }) {
  const rows = service.times.filter((row): row is { name: ServiceTime; ms: Quantiles } => row.ms !== null);
  const missing = service.times.filter((row) => row.ms === null).map((row) => kWords[row.name][0]);
  const quantile = (head: string, pick: (ms: Quantiles) => number | null): Column<{ name: ServiceTime; ms: Quantiles }> =>
    ({ head, numeric: true, cell: (row) => duration(pick(row.ms)) });
  return (
    <section class="card" aria-label="Times of a request">
      <div class="chart-head">
        <h2>Where does the time of a request go?</h2>
        <div class="controls">
          <label>last
            <select value={String(place.last)} onChange={(event) => go({ ...place, last: Number(event.currentTarget.value) }, true)}>
              {[...new Set<number>([...kServiceLastChoices, place.last])].sort((a, b) => a - b).map((seconds) => (
                <option key={seconds} value={String(seconds)}>{duration(seconds * 1e3)}</option>
              ))}
            </select>
          </label>
        </div>
        <Menu label="Menu of the service" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.service(place.service, place.last))) },
          { label: 'Copy as CLI', run: () => copy(`lockstep service --server ${shellWord(serverUrl())} ${shellWord(place.service)}`) },
        ]} />
      </div>
      <Table caption="Times of a request" what="parts" sorted="as they happen" rows={rows} total={rows.length} rowKey={(row) => row.name} columns={[
        { head: 'part', cell: (row) => <>{kWords[row.name][0]} <span class="muted">{kWords[row.name][1]}</span></> },
        quantile('half within', (ms) => ms.p50), quantile('90 % within', (ms) => ms.p90), quantile('99 % within', (ms) => ms.p99), quantile('mean', (ms) => ms.mean),
        { head: 'requests', numeric: true, cell: (row) => count(row.ms.count) },
      ]} />
      {missing.length > 0 && rows.length > 0 && <p class="muted">Not reported: {missing.join(', ')}.</p>}
    </section>
  );
}

function Slowest({ service }: { service: Service }) {
  if (service.slowest.length === 0) {
    return service.source === 'metrics' ? <p class="muted">Single requests are known where the service sends spans.</p> : null;
  }
  return (
    <section class="card" aria-label="Slowest requests">
      <div class="chart-head"><h2>Which requests waited longest for their first token?</h2></div>
      <Table caption="Slowest requests" what="requests" sorted="slowest first token first" rows={service.slowest} total={service.requests ?? service.slowest.length}
             rowKey={(row) => row.trace_id} columns={[
               { head: 'at', cell: (row) => <span title={utc(row.start_unix_ns)}>{clock(row.start_unix_ns, true)}</span> },
               { head: 'first token', numeric: true, cell: (row) => duration(row.ttft_ms) },
               { head: 'of it queue', numeric: true, cell: (row) => duration(row.queue_ms) },
               { head: 'of it prefill', numeric: true, cell: (row) => duration(row.prefill_ms) },
               { head: 'whole request', numeric: true, cell: (row) => duration(row.e2e_ms) },
               { head: 'trace', cell: (row) => <a href={`${prefix}/api/spans?trace_id=${encodeURIComponent(row.trace_id)}`} target="_blank" rel="noreferrer"><code>{row.trace_id}</code></a> },
             ]} />
    </section>
  );
}
