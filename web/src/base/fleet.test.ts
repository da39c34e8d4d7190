import { expect, it } from 'vitest';
import { decodeFleet, otlpAddress } from './fleet';

it('says where a job sends to, by the name under which the page was reached', () => {
  expect(otlpAddress(null, 'gpu-server')).toEqual({ url: 'http://gpu-server:4318', onlyHere: false });
  expect(otlpAddress(decodeFleet({ otlp_http: '0.0.0.0:5318', is_tls: true }), 'gpu-server')).toEqual({ url: 'https://gpu-server:5318', onlyHere: false });
  expect(otlpAddress(decodeFleet({ otlp_http: '127.0.0.1:4318' }), 'gpu-server').onlyHere).toBe(true);
  expect(otlpAddress(decodeFleet({ otlp_http: '127.0.0.1:4318' }), '127.0.0.1')).toEqual({ url: 'http://127.0.0.1:4318', onlyHere: false });
});
