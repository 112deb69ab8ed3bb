// The checks: each prints a line if it passes, or ends the run with a `Difference`.

import assert from "node:assert/strict";

export const NAMESPACE = "javascript-conformance";
export const GROUP = "javascript.conformance.example.com";
// Timeout in milliseconds for an event of a watch, and until a definition is served.
const TIMEOUT_MS = 20_000;

// A difference from the expected behaviour of the server.
export class Difference extends Error {}

function passed(name) {
  console.log(`ok      ${name}`);
}

export function equal(name, got, wanted) {
  try {
    assert.deepEqual(got, wanted);
  } catch {
    throw new Difference(`${name}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
  }
  passed(name);
}

export function holds(name, condition, seen) {
  if (!condition) {
    throw new Difference(`${name}: failed with ${JSON.stringify(seen)}`);
  }
  passed(name);
}

// Checks that the request fails with this code, and with a `Status` of this reason as its body.
export async function rejected(name, code, reason, request) {
  let result;
  try {
    result = await request();
  } catch (error) {
    if (error.code === undefined || error.body === undefined) {
      throw error;
    }
    const body = typeof error.body === "string" ? JSON.parse(error.body) : error.body;
    equal(name, [error.code, body.kind, body.code, body.reason], [code, "Status", code, reason]);
    return body;
  }
  throw new Difference(`${name}: not rejected: ${JSON.stringify(result)}`);
}

// Repeats the attempt until it returns a true value. Errors of the server are retried.
export async function eventually(name, attempt) {
  const end = Date.now() + TIMEOUT_MS;
  let last;
  while (Date.now() < end) {
    try {
      last = await attempt();
      if (last) {
        passed(name);
        return last;
      }
    } catch (error) {
      if (error.code === undefined) {
        throw error;
      }
      last = `${error}`;
    }
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Difference(`${name}: not met within ${TIMEOUT_MS} ms: ${JSON.stringify(last)}`);
}

export function configMap(name, data = {}) {
  return { metadata: { name, labels: { app: name } }, data };
}
