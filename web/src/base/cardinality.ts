// How many series the metrics store holds, and who made them.
import { list, num, object, text } from './decode';

export interface Creator {
  name: string;
  series: number;
}

export interface Cardinality {
  series: number | null;
  limit: number | null;
  limits: { metric: number | null; job: number | null; tenant: number | null; stream: number | null };
  metrics: Creator[];
  jobs: Creator[];
  tenants: Creator[];
  streams: Creator[];
  refused: { reason: string; samples: number }[];  // most first
}

export function decodeCardinality(value: unknown): Cardinality {
  const json = object(value);
  const limits = object(json['limits']);
  const creators = (key: string): Creator[] => list(json[key]).map((item) => {
    const one = object(item);
    return { name: text(one['name']), series: num(one['series']) ?? 0 };
  });
  return {
    series: num(json['series']),
    limit: num(limits['series']),
    limits: { metric: num(limits['metric']), job: num(limits['job']), tenant: num(limits['tenant']), stream: num(limits['stream']) },
    metrics: creators('metrics'),
    jobs: creators('jobs'),
    tenants: creators('tenants'),
    streams: creators('streams'),
    refused: Object.entries(object(json['refused_samples'])).map(([reason, samples]) => ({ reason: text(reason), samples: num(samples) ?? 0 }))
      .filter((one) => one.samples > 0).sort((a, b) => b.samples - a.samples),
  };
}
