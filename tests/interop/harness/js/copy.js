// Read, process, write in transactions with kafkajs; see copiers.py.
// Usage: node copy.js BOOTSTRAP SOURCE TARGET   (kafkajs in NODE_PATH)
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, source, target] = process.argv.slice(2);
const kafka = new Kafka({
  clientId: "copy",
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 20, maxRetryTime: 1000 },
});

async function copyBatch(producer, batch) {
  const transaction = await producer.transaction();
  try {
    await transaction.send({
      topic: target,
      acks: -1,
      messages: batch.messages.map(({ key, value }) => ({ key, value, partition: batch.partition })),
    });
    const offset = String(Number(batch.lastOffset()) + 1);
    const partitions = [{ partition: batch.partition, offset }];
    await transaction.sendOffsets({ consumerGroupId: "copy", topics: [{ topic: source, partitions }] });
    await transaction.commit();
  } catch (error) {
    if (transaction.isActive()) await transaction.abort().catch(() => {});
    throw error;
  }
}

async function copy() {
  const producer = kafka.producer({
    transactionalId: "copy",
    idempotent: true,
    maxInFlightRequests: 1,
  });
  const consumer = kafka.consumer({
    groupId: "copy",
    maxWaitTimeInMs: 200,
    readUncommitted: false,
  });
  try {
    await producer.connect();
    await consumer.connect();
    await consumer.subscribe({ topic: source, fromBeginning: true });
    await new Promise((_, fail) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error));
      consumer
        .run({
          autoCommit: false,
          eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
            try {
              await copyBatch(producer, batch);
            } catch (error) {
              fail(error);
              throw error;
            }
            resolveOffset(batch.lastOffset());
            console.log(batch.messages.length);
            await heartbeat();
          },
        })
        .catch(fail);
    });
  } finally {
    await Promise.allSettled([consumer.disconnect(), producer.disconnect()]);
  }
}

(async () => {
  for (;;) await copy().catch((error) => console.error(`begins again: ${error.name}: ${error.message}`));
})();
