// Read, process, write in transactions with franz-go; see copiers.py. Arguments: BOOTSTRAP SOURCE TARGET.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	for {
		log.Print("begins again: ", copyRecords(os.Args[1], os.Args[2], os.Args[3]))
	}
}

func copyRecords(bootstrap, source, target string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID("copy"),
		kgo.ConsumerGroup("copy"),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx := context.Background()
	for {
		fetches := session.PollRecords(ctx, 100)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(read *kgo.Record) {
			copied := &kgo.Record{Topic: target, Partition: read.Partition, Key: read.Key, Value: read.Value}
			session.Produce(ctx, copied, promise.Promise())
		})
		failed := promise.Err()
		committed, err := session.End(ctx, kgo.TransactionEndTry(failed == nil))
		if err != nil {
			return err
		}
		if committed {
			fmt.Println(fetches.NumRecords())
		} else {
			log.Print("aborted: ", failed)
		}
	}
}
