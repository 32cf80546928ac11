// node-redlock as a foreign client; the protocol is in ../README.md.
"use strict";

const { once } = require("node:events");
const { setImmediate: turnOfTheLoop, setTimeout: sleep } = require("node:timers/promises");
const { default: Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const TTL_MS = 10_000;

async function turns(server, key, count, pauseUs, name) {
  // The defaults, ten tries 200 ms apart, would give up in the crowd.
  const redlock = new Redlock([server], { retryCount: -1, retryDelay: 2, retryJitter: 2 });
  console.log("ready");
  await once(process.stdin, "data");
  let overlaps = 0;
  let maxWait = 0n;
  for (let turn = 0; turn < count; turn++) {
    const start = process.hrtime.bigint();
    const lock = await redlock.acquire([key], TTL_MS);
    const wait = process.hrtime.bigint() - start;
    if (wait > maxWait) maxWait = wait;
    if ((await server.set("inside", name, "NX")) === null) overlaps++;
    const before = Number((await server.get("counter")) ?? 0);
    await turnOfTheLoop();
    await server.set("counter", before + 1);
    await server.rpush("order", name);
    await server.del("inside");
    await lock.release();
    await sleep((Math.random() * 2 * pauseUs) / 1000);
  }
  console.log(`turns=${count} overlaps=${overlaps} max_wait_us=${maxWait / 1000n}`);
}

async function main() {
  const [port, key, verb, count, pauseUs, name] = process.argv.slice(2);
  if (verb !== "turns") throw new Error(`there is no ${verb}`);
  const server = new Redis({ host: "127.0.0.1", port: Number(port) });
  await turns(server, key, Number(count), Number(pauseUs), name);
  await server.quit();
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
