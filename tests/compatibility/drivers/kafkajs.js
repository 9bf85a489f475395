// kafkajs behind the face of drivers/__init__.py: one operation per process, arguments as JSON.
// Usage: node kafkajs.js OPERATION BOOTSTRAP CLIENT_ID FILE   (kafkajs in NODE_PATH)
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");
const { randomUUID } = require("crypto");
const { readFileSync } = require("fs");

const [operation, bootstrap, clientId, file] = process.argv.slice(2);
const args = JSON.parse(readFileSync(file));
// It beats its heart between fetches only, so these must not take long.
const waits = { maxWaitTimeInMs: 200 };
const kafka = new Kafka({
  clientId,
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 20, maxRetryTime: 1000 },
});
const bytes = (coded) => (coded == null ? null : Buffer.from(coded, "base64"));
const coded = (buffer) => (buffer == null ? null : Buffer.from(buffer).toString("base64"));
const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const line = () => new Promise((resolve) => process.stdin.once("data", resolve));

const seen = (partition, message) => ({
  partition,
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: coded(message.key),
  value: coded(message.value),
  headers: Object.entries(message.headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, coded(one)])
  ),
});

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

// Reads with a group of its own, from the beginning unless `ready` seeks; `take` says when to stop.
async function withConsumer(topic, ready, take) {
  const consumer = kafka.consumer({ groupId: randomUUID(), sessionTimeout: 10000, ...waits });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  const done = new Promise((resolve, reject) => {
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          const result = take(consumer, seen(partition, message));
          if (result !== undefined) resolve(result);
        },
      })
      .catch(reject);
  });
  await joined;
  await ready(consumer);
  const result = await done;
  await consumer.disconnect();
  return result;
}

const operations = {
  version: async () => require("kafkajs/package.json").version,

  produce: async () => {
    const producer = kafka.producer({ idempotent: args.idempotent, maxInFlightRequests: 1 });
    await producer.connect();
    const messages = args.records.map((record) => {
      const headers = {};
      for (const [name, value] of record.headers)
        headers[name] = [...(headers[name] || []), bytes(value)];
      return {
        key: bytes(record.key),
        value: bytes(record.value),
        headers,
        ...(record.timestamp == null ? {} : { timestamp: String(record.timestamp) }),
        ...(record.partition == null ? {} : { partition: record.partition }),
      };
    });
    const half = Math.floor(messages.length / 2);
    const send = (some) =>
      producer.send({
        topic: args.topic,
        acks: -1,
        compression: CompressionTypes[args.codec === "none" ? "None" : args.codec.toUpperCase()],
        messages: some,
      });
    if (half) await send(messages.slice(0, half));
    print("half");
    await line();
    await send(messages.slice(half));
    await producer.disconnect();
  },

  consume: async () => {
    const found = [];
    return withConsumer(
      args.topic,
      async () => {},
      (consumer, record) => {
        const start = args.starts[record.partition];
        if (start !== undefined && record.offset >= start) found.push(record);
        return found.length >= args.count ? found : undefined;
      }
    );
  },

  seek: async () => {
    const found = [];
    return withConsumer(
      args.topic,
      async (consumer) => consumer.seek({ topic: args.topic, partition: 0, offset: `${args.first}` }),
      (consumer, record) => {
        if (record.partition !== 0) return undefined;
        if (found.length === 0 && record.offset === args.first) {
          found.push(record.offset);
          consumer.seek({ topic: args.topic, partition: 0, offset: `${args.then}` });
        } else if (found.length === 1 && record.offset === args.then) found.push(record.offset);
        return found.length === 2 ? found : undefined;
      }
    );
  },

  pause: async () => {
    const before = [];
    const after = [];
    return withConsumer(
      args.topic,
      async (consumer) => {
        consumer.pause([{ topic: args.topic, partitions: [0] }]);
        for (const partition of [0, 1]) consumer.seek({ topic: args.topic, partition, offset: "0" });
        before.ready = true;
      },
      (consumer, record) => {
        if (!before.ready) return undefined;
        if (before.length < 3) {
          before.push(record.partition);
          if (before.length === 3) consumer.resume([{ topic: args.topic, partitions: [0] }]);
        } else after.push(record.partition);
        return after.length >= 3 ? [before.slice(), after] : undefined;
      }
    );
  },

  offset_at: () =>
    withAdmin(async (admin) => {
      const found = await admin.fetchTopicOffsetsByTimestamp(args.topic, args.timestamp);
      return Number(found.find((part) => part.partition === args.partition).offset);
    }),

  member: async () => {
    const consumer = kafka.consumer({
      groupId: args.group,
      sessionTimeout: args.session_ms,
      heartbeatInterval: Math.floor(args.session_ms / 10),
      rebalanceTimeout: 10000,
      ...waits,
    });
    await consumer.connect();
    await consumer.subscribe({ topic: args.topic, fromBeginning: true });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
      print({ assigned: payload.memberAssignment[args.topic] || [] })
    );
    process.on("SIGTERM", () => consumer.disconnect().then(() => process.exit(0)));
    await consumer.run({
      autoCommitInterval: 200,
      eachMessage: async ({ partition, message }) =>
        print({ record: [partition, Number(message.offset)] }),
    });
    await new Promise(() => {});
  },

  create_topic: () =>
    withAdmin(async (admin) => {
      const created = await admin.createTopics({
        waitForLeaders: true,
        topics: [
          { topic: args.topic, numPartitions: args.partitions, replicationFactor: args.copies },
        ],
      });
      if (!created) throw new Error("the topic already exists");
    }),
  topics: () => withAdmin((admin) => admin.listTopics()),
  describe: () =>
    withAdmin(async (admin) => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [args.topic] });
      return topics[0].partitions.map((part) => [
        part.partitionId,
        part.leader,
        part.replicas,
        part.isr,
      ]);
    }),
  add_partitions: () =>
    withAdmin((admin) =>
      admin.createPartitions({ topicPartitions: [{ topic: args.topic, count: args.count }] })
    ),
  delete_topic: () => withAdmin((admin) => admin.deleteTopics({ topics: [args.topic] })),
  set_config: () =>
    withAdmin((admin) =>
      admin.alterConfigs({
        resources: [
          { type: 2, name: args.topic, configEntries: [{ name: args.name, value: args.value }] },
        ],
      })
    ),
  config: () =>
    withAdmin(async (admin) => {
      const found = await admin.describeConfigs({
        includeSynonyms: false,
        resources: [{ type: 2, name: args.topic, configNames: [args.name] }],
      });
      return found.resources[0].configEntries.find((entry) => entry.configName === args.name)
        .configValue;
    }),
  groups: () =>
    withAdmin(async (admin) => (await admin.listGroups()).groups.map((group) => group.groupId)),
  group_offset: () =>
    withAdmin(async (admin) => {
      const found = await admin.fetchOffsets({ groupId: args.group, topics: [args.topic] });
      const parts = found[0].partitions;
      return Number(parts.find((part) => part.partition === args.partition).offset);
    }),
  delete_group: () => withAdmin((admin) => admin.deleteGroups([args.group])),
  delete_records: () =>
    withAdmin(async (admin) => {
      await admin.fetchTopicOffsets(args.topic); // it deletes only from topics it has looked at
      await admin.deleteTopicRecords({
        topic: args.topic,
        partitions: [{ partition: args.partition, offset: String(args.before) }],
      });
    }),
};

operations[operation]()
  .then((result) => ({ result: result === undefined ? null : result }))
  .catch((error) => ({ error: `${error.type || error.name}: ${error.message}` }))
  .then((told) => process.stdout.write(JSON.stringify(told) + "\n", () => process.exit(0)));
