// A page whose script is fetched when somebody goes there: the first load stays small.
import type { FunctionComponent } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Frame } from './frame';
import { Loading } from './loading';

export function lazily<Props extends object>(what: string, load: () => Promise<FunctionComponent<Props>>): FunctionComponent<Props> {
  let known: FunctionComponent<Props> | null = null;
  return function Lazy(props: Props) {
    const [state, setState] = useState<'asked' | 'here' | 'failed'>('asked');
    useEffect(() => {
      if (known) return;
      load().then((page) => {
        known = page;
        setState('here');
      }, () => setState('failed'));
    }, []);
    if (known) {
      const Page = known;
      return <Page {...props} />;
    }
    return (
      <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }]}>
        {state === 'failed'
          ? <section class="card"><h2 class="sentence" role="alert">The server did not send {what}. It may have been updated: reload the page.</h2></section>
          : <Loading what={what} />}
      </Frame>
    );
  };
}
