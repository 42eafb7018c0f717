// The client program on sarama; ../../clients/README.md has its arguments.
package main

import (
	"context"
	"errors"
	"log"
	"math"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kquota.test/clients/workload"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

// scramClient is franz-go's exchange, since sarama brings none.
type scramClient struct {
	auth    scram.Auth
	session sasl.Session
	isDone  bool
}

func (s *scramClient) Begin(user, password, authzID string) error {
	s.auth, s.session, s.isDone = scram.Auth{User: user, Pass: password, Zid: authzID}, nil, false
	return nil
}

func (s *scramClient) Step(challenge string) (string, error) {
	var answer []byte
	var err error
	if s.session == nil {
		s.session, answer, err = s.auth.AsSha256Mechanism().Authenticate(context.Background(), "")
	} else {
		s.isDone, answer, err = s.session.Challenge([]byte(challenge))
	}
	return string(answer), err
}

func (s *scramClient) Done() bool { return s.isDone }

type tokens struct{ settings workload.Settings }

func (t tokens) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: t.settings.Token()}, nil
}

func configuration(settings workload.Settings) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.ClientID = settings.ClientID()
	config.Metadata.Retry.Max = 600
	config.Metadata.Retry.Backoff = 200 * time.Millisecond
	if certificates := settings.TLS(); certificates != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, certificates
	}
	if mechanism := settings.Mechanism(); mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = settings["sasl.username"], settings["sasl.password"]
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{} }
		config.Net.SASL.TokenProvider = tokens{settings}
	}
	return config
}

func producer(settings workload.Settings, transactionalID string) sarama.AsyncProducer {
	config := configuration(settings)
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[settings.Text("compression.type", "none")]
	config.Producer.Flush.Frequency = settings.Linger()
	config.Producer.Return.Successes, config.Producer.Return.Errors = true, true
	// It counts retries, not time.
	config.Producer.Retry.Backoff = 100 * time.Millisecond
	config.Producer.Retry.Max = int(settings.DeliveryTimeout() / config.Producer.Retry.Backoff)
	config.Producer.Transaction.Retry.Backoff = 100 * time.Millisecond
	config.Producer.Transaction.Retry.Max = int(workload.Patience / config.Producer.Transaction.Retry.Backoff)
	if settings.Idempotent() || transactionalID != "" {
		config.Producer.Idempotent = true
		config.Producer.Transaction.ID = transactionalID
		config.Net.MaxOpenRequests = 1 // what it demands
	}
	opened, err := sarama.NewAsyncProducer(settings.Bootstrap(), config)
	if err != nil {
		log.Fatal(err)
	}
	return opened
}

func prepared(settings workload.Settings, record workload.Record) *sarama.ProducerMessage {
	// What the broker calls a duplicate is acknowledged without an offset.
	return &sarama.ProducerMessage{
		Topic: settings["topic"], Partition: record.Partition, Offset: -1, Metadata: record,
		Key: sarama.ByteEncoder(record.Key), Value: sarama.ByteEncoder(record.Value),
	}
}

func produce(settings workload.Settings, output *workload.Output) {
	opened := producer(settings, "")
	var unanswered, readers sync.WaitGroup
	readers.Go(func() {
		for sent := range opened.Successes() {
			record := sent.Metadata.(workload.Record)
			output.Write(sent.Partition, sent.Offset, record.Key, record.Value, "")
			unanswered.Done()
		}
	})
	readers.Go(func() {
		for failure := range opened.Errors() {
			output.Failed(failure.Err)
			unanswered.Done()
		}
	})
	output.Each(func(record workload.Record) {
		unanswered.Add(1)
		opened.Input() <- prepared(settings, record)
	})
	unanswered.Wait() // once it closes, it gives up what it would have to send again
	opened.AsyncClose()
	readers.Wait()
}

func transact(settings workload.Settings, output *workload.Output) {
	opened := producer(settings, settings["transactional.id"])
	output.EachTransaction(func(number int64, batch []workload.Record, isToAbort bool) {
		offsets := map[int64]int64{}
		end, state := opened.CommitTxn, "committed"
		if isToAbort {
			end, state = opened.AbortTxn, "aborted"
		}
		err := opened.BeginTxn()
		if err == nil {
			go func() {
				for _, one := range batch {
					opened.Input() <- prepared(settings, one)
				}
			}()
			for range batch {
				select {
				case sent := <-opened.Successes():
					offsets[sent.Metadata.(workload.Record).Sequence] = sent.Offset
				case failure := <-opened.Errors():
					log.Printf("transaction %d: %v", number, failure.Err)
					end, state = opened.AbortTxn, "aborted"
				}
			}
			err = retried(end)
		}
		if err != nil {
			log.Printf("transaction %d: %v", number, err)
			if opened.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 && retried(opened.AbortTxn) == nil {
				state = "aborted"
			} else {
				state = "unknown"
				opened.AsyncClose()
				opened = producer(settings, settings["transactional.id"])
			}
		}
		output.WriteTransaction(batch, offsets, state, number)
	})
	if err := opened.Close(); err != nil {
		log.Print(err)
	}
}

// retried calls again while the transaction is still open, with the same outcome as the first time.
func retried(end func() error) error {
	deadline := time.Now().Add(workload.Patience)
	for {
		err := end()
		var failure sarama.KError
		if err == nil || !errors.As(err, &failure) || failure != sarama.ErrRequestTimedOut || time.Now().After(deadline) {
			return err
		}
	}
}

// claims writes what a member of a group reads.
type claims struct{ output *workload.Output }

func (claims) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c claims) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case read, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			c.output.Write(read.Partition, read.Offset, read.Key, read.Value, "")
			session.MarkMessage(read, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(settings workload.Settings, output *workload.Output) {
	config := configuration(settings)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if settings.Text("isolation.level", "") == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	ctx, cancel := context.WithCancel(context.Background())
	if group := settings.Text("group.id", ""); group != "" {
		consumer, err := sarama.NewConsumerGroup(settings.Bootstrap(), group, config)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			for ctx.Err() == nil {
				if err := consumer.Consume(ctx, []string{settings["topic"]}, claims{output}); err != nil {
					log.Print(err)
					time.Sleep(100 * time.Millisecond)
				}
			}
		}()
		defer func() {
			if err := consumer.Close(); err != nil {
				log.Print(err)
			}
		}()
	} else {
		consumer, err := sarama.NewConsumer(settings.Bootstrap(), config)
		if err != nil {
			log.Fatal(err)
		}
		for number := range settings.Partitions() {
			partition, err := consumer.ConsumePartition(settings["topic"], number, sarama.OffsetOldest)
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				for read := range partition.Messages() {
					output.Write(read.Partition, read.Offset, read.Key, read.Value, "")
				}
			}()
		}
	}
	records := settings.Number("records", math.Inf(1))
	for float64(output.Different()) < records && !output.IsOver() {
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
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
