import { describe, expect, it } from 'vitest';
import { decodePorts, isBadPort, kPortsShown, portValuesQuery, portWords, sortPorts, worstPortsQuery } from './ports';

const answer = (...rows: [string, string, string, number | string][]) => ({ data: { result: rows.map(([name, port, what, value]) => ({ metric: { switch: name, port, what }, value: [1, String(value)] })) } });

describe('ports of switches', () => {
  it('are asked for by name, whatever the name holds', () => {
    expect(worstPortsQuery('port', '')).toContain('topk(24, sum by (switch, port) (rate(lockstep_port_discards_total[5m])) > 0)');
    expect(worstPortsQuery('switch', 'a"b\\')).toContain('sum by (switch) (rate(lockstep_port_errors_total{switch="a\\"b\\\\"}[5m]))');
    const rows = decodePorts(answer(['leaf-1.x', 'Eth1/1', 'errors', 1], ['leaf-1.x', 'Eth(2)', 'errors', 1]));
    expect(portValuesQuery('port', rows)).toContain('{switch=~"leaf-1\\\\.x", port=~"Eth1/1|Eth\\\\(2\\\\)"}');
  });
  it('are read whatever is odd, each once', () => {
    const rows = decodePorts(answer(['a', '1', 'errors', 2], ['a', '1', 'load', 3], ['a', '1', 'weird', 3], ['', '1', 'errors', 1], ['b', '2', 'errors', 'NaN']));
    expect(rows).toHaveLength(1);
    expect(rows[0]).toMatchObject({ switchName: 'a', port: '1', values: { errors: 2, load: 3, discards: null } });
    expect(decodePorts(null)).toEqual([]);
  });
  it('stand the worst first: down, losing packets, making others wait, full', () => {
    const rows = decodePorts(answer(['full', '1', 'used', 0.9], ['marks', '1', 'ecn', 9], ['drops', '1', 'discards', 5], ['errs', '1', 'errors', 7], ['gone', '1', 'down', 1], ['pauses', '1', 'pause', 2]));
    expect(sortPorts(rows, 'worst').map((row) => row.switchName)).toEqual(['gone', 'errs', 'drops', 'pauses', 'marks', 'full']);
    expect(sortPorts(rows, 'used')[0]!.switchName).toBe('full');
    expect(rows.filter(isBadPort).map((row) => row.switchName).sort()).toEqual(['drops', 'errs', 'gone']);
  });
  it('are counted as far as they are known', () => {
    const many = (count: number) => decodePorts(answer(...Array.from({ length: count }, (_, i): [string, string, string, number] => ['leaf', String(i), 'errors', 2])));
    expect(portWords(many(1))).toBe('leaf:0 has 2 errors a second');
    expect(portWords(many(kPortsShown - 1))).toBe('23 ports are in trouble, first leaf:0: it has 2 errors a second');
    expect(portWords(many(kPortsShown))).toBe('At least 24 ports are in trouble, first leaf:0: it has 2 errors a second');
  });
});
