import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Read, process, write in transactions with the Java client; see copiers.py. Arguments: BOOTSTRAP SOURCE TARGET. */
public final class Copy {
    public static void main(String[] arguments) {
        while (true) {
            try {
                copy(arguments[0], arguments[1], arguments[2]);
            } catch (KafkaException error) {
                System.err.println("begins again: " + error);
            }
        }
    }

    private static void copy(String bootstrap, String source, String target) {
        Map<String, Object> forProducer = Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", "copy");
        Map<String, Object> forConsumer = Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", "copy",
            "isolation.level", "read_committed",
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest",
            "max.poll.records", 100);
        ByteArraySerializer out = new ByteArraySerializer();
        ByteArrayDeserializer in = new ByteArrayDeserializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(forProducer, out, out);
             KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(forConsumer, in, in)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copy(records, target, producer, consumer);
                    System.out.println(records.count());
                }
            }
        }
    }

    private static void copy(
            ConsumerRecords<byte[], byte[]> records,
            String target,
            KafkaProducer<byte[], byte[]> producer,
            KafkaConsumer<byte[], byte[]> consumer) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
            offsets.put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }
}
