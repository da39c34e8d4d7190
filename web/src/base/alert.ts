// Alerts: what fires, what is over, and whether those who should know were told.
import { list, num, object, text } from './decode';

export interface Alert {
  id: string;
  name: string;
  severity: string;  // info, warning, critical
  firing: boolean;
  sentence: string;
  cost: string;
  action: string;
  path: string;      // of the page with the evidence, on this server
  incident: string;  // its id; empty: it is of none, or not yet
  startsNs: number | null;
  endsNs: number | null;
  episodes: number;
  delivery: string;  // in a word or two
  problems: string[];
}

export interface AlertList {
  alerts: Alert[];
  total: number;
  firing: number;
  receivers: number;  // and Alertmanagers
}

export function decodeAlerts(value: unknown): AlertList {
  const json = object(value);
  const alerts = list(json['alerts']).map(decodeAlert);
  return {
    alerts,
    total: num(json['total']) ?? alerts.length,
    firing: alerts.filter((alert) => alert.firing).length,
    receivers: list(json['receivers']).length + list(json['alertmanagers']).length,
  };
}

// On this server: browsers take "//" and "/\\" for another one.
const kOwnPath = /^\/(?![/\\])[^\s\\]*$/;

function decodeAlert(value: unknown): Alert {
  const one = object(value);
  const annotations = object(one['annotations']);
  const moment = (key: string): number | null => {
    const ns = num(one[key]);
    return ns === null || ns <= 0 ? null : ns;
  };
  const path = text(one['path']);
  return {
    id: text(one['fingerprint']),
    name: text(one['name']),
    severity: text(one['severity']),
    firing: one['state'] === 'firing',
    sentence: text(one['sentence']),
    cost: text(annotations['cost']),
    action: text(annotations['action']),
    path: kOwnPath.test(path) ? path : '/',
    incident: /^\/incidents\/([\w-]{1,64})$/.exec(text(annotations['incident']))?.[1] ?? '',
    startsNs: moment('starts_unix_ns'),
    endsNs: moment('ends_unix_ns'),
    episodes: num(one['episodes']) ?? 1,
    delivery: text(one['delivery']),
    problems: list(one['deliveries']).map(object).filter((delivery) => text(delivery['error']) !== '')
      .map((delivery) => `${text(delivery['receiver'])}: ${text(delivery['error'])}`),
  };
}
