// Inference services, by name; the fleet shows the first of them.
import { useSignal } from '@preact/signals';
import { api, Refused } from '../base/api';
import { clean, count } from '../base/format';
import { usePoll } from '../base/poll';
import { docsPlace, servicePlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';

const kEveryMs = 10_000;

export function ServicesPage() {
  const names = useSignal<string[] | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([], async (signal) => {
    names.value = await api.services(signal).catch((error: unknown) => {
      // A server that knows no services says so with a 404.
      if (error instanceof Refused) return [];
      throw error;
    });
  }, (message) => { refused.value = message; }, () => kEveryMs);
  document.title = 'Services · Lockstep';
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Services', to: { page: 'services' } }]}
           state={names.value && <span>{count(names.value.length)} {names.value.length === 1 ? 'service' : 'services'}</span>}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!names.value ? !refused.value && <Loading what="the services" /> : names.value.length > 0 ? <Services names={names.value} shown={names.value.length} /> : <NoServices />}
    </Frame>
  );
}

export function Services({ names, shown }: { names: string[]; shown: number }) {
  return (
    <section class="card" aria-label="Services">
      <h2>Services</h2>
      <ul class="services">
        {names.slice(0, shown).map((name) => <li key={name}><PlaceLink to={servicePlace(name)}>{clean(name)}</PlaceLink></li>)}
      </ul>
      <p class="muted">
        {count(Math.min(shown, names.length))} of {shown < names.length ? <PlaceLink to={{ page: 'services' }}>{count(names.length)} services</PlaceLink> : <>{count(names.length)} {names.length === 1 ? 'service' : 'services'}</>} that
        sent spans or metrics of an inference engine within 15 min, by name
      </p>
    </section>
  );
}

function NoServices() {
  return (
    <section class="card empty">
      <h2>No services yet.</h2>
      <p>A service is here once it sends spans of its requests, or metrics of an inference engine such as vLLM, by OTLP or remote write, or is scraped.</p>
      <p class="muted">How: <PlaceLink to={docsPlace('guide/metrics-in-and-out')}>metrics in and out</PlaceLink>, <PlaceLink to={docsPlace('guide/frameworks')}>frameworks</PlaceLink>.</p>
    </section>
  );
}
