// franz-go against a cluster: a topic, idempotent records, a consumer group that reads them all, its
// committed offsets, and the topic deleted again. Prints one line per step; any error ends it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic   = "from-go"
	group   = "go-group"
	records = 10_000
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seeds := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	client := must(kgo.NewClient(seeds, kgo.ProducerBatchCompression(kgo.ZstdCompression())))
	defer client.Close()
	admin := kadm.NewClient(client)
	must(admin.CreateTopic(ctx, 3, 3, nil, topic))
	brokers := must(admin.ListBrokers(ctx))
	fmt.Println("brokers", len(brokers))

	produce(ctx, client)
	ends := must(admin.ListEndOffsets(ctx, topic))
	total := int64(0)
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	fmt.Println("produced", total)

	fmt.Println("consumed", consume(ctx, seeds))
	committed := int64(0)
	must(admin.FetchOffsets(ctx, group)).Each(func(at kadm.OffsetResponse) { committed += at.At })
	fmt.Println("committed", committed)
	must(admin.DeleteTopics(ctx, topic))
	fmt.Println("deleted")
}

func produce(ctx context.Context, client *kgo.Client) {
	for number := range records {
		record := kgo.KeyStringRecord(fmt.Sprint(number), fmt.Sprint("value ", number))
		record.Topic = topic
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, seeds kgo.Opt) int {
	member := must(kgo.NewClient(
		seeds,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	))
	defer member.Close()
	seen := map[string]bool{}
	for len(seen) < records {
		fetches := member.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Key)] = true })
	}
	if err := member.CommitUncommittedOffsets(ctx); err != nil {
		log.Fatal(err)
	}
	return len(seen)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
