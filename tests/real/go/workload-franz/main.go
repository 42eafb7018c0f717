// The client program on franz-go; ../../clients/README.md has its arguments.
package main

import (
	"context"
	"log"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kquota.test/clients/workload"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func client(settings workload.Settings, more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{kgo.SeedBrokers(settings.Bootstrap()...), kgo.ClientID(settings.ClientID())}
	if config := settings.TLS(); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	user, password := settings["sasl.username"], settings["sasl.password"]
	switch settings.Mechanism() {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: settings.Token()}.AsMechanism()))
	}
	opened, err := kgo.NewClient(append(options, more...)...)
	if err != nil {
		log.Fatal(err)
	}
	return opened
}

func producer(settings workload.Settings, more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[settings.Text("compression.type", "none")]),
		kgo.ProducerLinger(settings.Linger()),
		kgo.RecordDeliveryTimeout(settings.DeliveryTimeout()),
		kgo.UnknownTopicRetries(-1),
	}
	if !settings.Idempotent() {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
	}
	return client(settings, append(options, more...)...)
}

func prepared(settings workload.Settings, record workload.Record) *kgo.Record {
	return &kgo.Record{
		Topic: settings["topic"], Partition: record.Partition, Key: record.Key, Value: record.Value,
	}
}

func produce(settings workload.Settings, output *workload.Output) {
	ctx := context.Background()
	opened := producer(settings)
	output.Each(func(record workload.Record) {
		opened.Produce(ctx, prepared(settings, record), func(sent *kgo.Record, err error) {
			if err != nil {
				output.Failed(err)
				return
			}
			output.Write(sent.Partition, sent.Offset, sent.Key, sent.Value, "")
		})
	})
	if err := opened.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	opened.Close()
}

func transact(settings workload.Settings, output *workload.Output) {
	ctx := context.Background()
	open := func() *kgo.Client { return producer(settings, kgo.TransactionalID(settings["transactional.id"])) }
	opened := open()
	output.EachTransaction(func(number int64, batch []workload.Record, isToAbort bool) {
		var lock sync.Mutex
		offsets := map[int64]int64{}
		wanted, state := kgo.TryCommit, "committed"
		if isToAbort {
			wanted, state = kgo.TryAbort, "aborted"
		}
		err := opened.BeginTransaction()
		if err == nil {
			var failure error
			for _, one := range batch {
				opened.Produce(ctx, prepared(settings, one), func(sent *kgo.Record, err error) {
					lock.Lock()
					defer lock.Unlock()
					if err != nil {
						failure = err
						return
					}
					offsets[one.Sequence] = sent.Offset
				})
			}
			err = opened.Flush(ctx)
			if err == nil && failure != nil {
				log.Printf("transaction %d: %v", number, failure)
				wanted, state = kgo.TryAbort, "aborted"
			}
		}
		if err == nil {
			patience, cancel := context.WithTimeout(ctx, workload.Patience)
			err = opened.EndTransaction(patience, wanted)
			cancel()
		}
		if err != nil {
			log.Printf("transaction %d: %v", number, err)
			state = "unknown"
			opened.Close()
			opened = open()
		}
		output.WriteTransaction(batch, offsets, state, number)
	})
	opened.Close()
}

func consume(settings workload.Settings, output *workload.Output) {
	options := []kgo.Opt{kgo.ConsumeStartOffset(kgo.NewOffset().AtStart())}
	if settings.Text("isolation.level", "") == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if group := settings.Text("group.id", ""); group != "" {
		options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(settings["topic"]))
	} else {
		offsets := map[int32]kgo.Offset{}
		for partition := range settings.Partitions() {
			offsets[partition] = kgo.NewOffset().AtStart()
		}
		topics := map[string]map[int32]kgo.Offset{settings["topic"]: offsets}
		options = append(options, kgo.ConsumePartitions(topics))
	}
	opened := client(settings, options...)
	records := settings.Number("records", math.Inf(1))
	for float64(output.Different()) < records && !output.IsOver() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		opened.PollFetches(ctx).EachRecord(func(read *kgo.Record) {
			output.Write(read.Partition, read.Offset, read.Key, read.Value, "")
		})
		cancel()
	}
	opened.Close()
}

func main() {
	settings := workload.Parse()
	output := workload.NewOutput(settings)
	modes := map[string]func(workload.Settings, *workload.Output){
		"produce": produce, "transact": transact, "consume": consume,
	}
	modes[settings["mode"]](settings, output)
	output.Finish()
}
