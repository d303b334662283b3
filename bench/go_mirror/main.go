// A bare mirror in Go: it reads each record of a topic with franz-go and produces it to the same partition of the
// remote topic. It keeps no positions, so it cannot resume, and copies neither configs, ACLs nor group offsets.
//
// What it needs it reads from a MirrorMaker 2 configuration file: aliases and addresses, one topic by its name, and
// those client settings that are listed in `mirror`.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// The collector runs when the heap is five times what is in use, or near the limit: memory for CPU time, as the
	// tuned Java candidate does it with the same 2 GiB.
	gcPercent  = 400
	heapLimit  = 2 << 30
	flushLimit = 10 * time.Second
	// A topic that was just created may not be known to the broker yet.
	metadataMinAge      = 100 * time.Millisecond
	unknownTopicRetries = 100
)

type properties map[string]string

// readProperties reads lines of `key = value`.
func readProperties(path string) (properties, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := properties{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, isPair := strings.Cut(lines.Text(), "=")
		if isPair && !strings.HasPrefix(key, "#") {
			found[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return found, lines.Err()
}

// list returns the parts of a value that is separated by commas.
func (p properties) list(key string) []string {
	parts := strings.Split(p[key], ",")
	for number, part := range parts {
		parts[number] = strings.TrimSpace(part)
	}
	return parts
}

// number returns a value that must be there.
func (p properties) number(key string) int {
	value, err := strconv.Atoi(p[key])
	if err != nil {
		log.Fatalf("%s: %q is not a number", key, p[key])
	}
	return value
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "none":
		return kgo.NoCompression()
	case "lz4":
		return kgo.Lz4Compression()
	}
	log.Fatalf("compression.type %q is neither none nor lz4", name)
	panic("not reached")
}

type flow struct {
	source, target, topic, remoteTopic string
}

func flowOf(settings properties) (flow, error) {
	aliases := settings.list("clusters")
	if len(aliases) != 2 {
		return flow{}, fmt.Errorf("clusters = %s, but it takes two", settings["clusters"])
	}
	topic := settings[aliases[0]+"->"+aliases[1]+".topics"]
	if topic == "" {
		return flow{}, fmt.Errorf("no topic of %s->%s is named", aliases[0], aliases[1])
	}
	return flow{aliases[0], aliases[1], topic, aliases[0] + "." + topic}, nil
}

// createRemoteTopic creates it with as many partitions as the source topic has. One that exists is an error: nothing
// is known of what was copied to it.
func createRemoteTopic(ctx context.Context, it flow, source, target *kgo.Client) error {
	found, err := kadm.NewClient(source).ListTopics(ctx, it.topic)
	if err != nil {
		return err
	}
	if err := found[it.topic].Err; err != nil {
		return fmt.Errorf("%s: %w", it.topic, err)
	}
	partitions := int32(len(found[it.topic].Partitions))
	if _, err := kadm.NewClient(target).CreateTopic(ctx, partitions, 1, nil, it.remoteTopic); err != nil {
		return fmt.Errorf("%s: %w", it.remoteTopic, err)
	}
	return nil
}

func clients(settings properties, it flow) (source, target *kgo.Client, err error) {
	consumer, producer := it.source+".consumer.", it.target+".producer."
	source, err = kgo.NewClient(
		kgo.SeedBrokers(settings.list(it.source+".bootstrap.servers")...),
		kgo.ConsumeTopics(it.topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(time.Duration(settings.number(consumer+"fetch.max.wait.ms"))*time.Millisecond),
		kgo.FetchMaxBytes(int32(settings.number(consumer+"fetch.max.bytes"))),
		kgo.FetchMaxPartitionBytes(int32(settings.number(consumer+"max.partition.fetch.bytes"))),
		kgo.DisableFetchCRCValidation(),
	)
	if err != nil {
		return nil, nil, err
	}
	target, err = kgo.NewClient(
		kgo.SeedBrokers(settings.list(it.target+".bootstrap.servers")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// Idempotent, with five requests in flight: franz-go's own defaults.
		kgo.ProducerBatchCompression(codec(settings[producer+"compression.type"])),
		kgo.ProducerBatchMaxBytes(int32(settings.number(producer+"batch.size"))),
		kgo.ProducerLinger(time.Duration(settings.number(producer+"linger.ms"))*time.Millisecond),
		kgo.MaxBufferedBytes(settings.number(producer+"buffer.memory")),
		// The bytes are the limit, not the number of records.
		kgo.MaxBufferedRecords(settings.number(producer+"buffer.memory")/100),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.UnknownTopicRetries(unknownTopicRetries),
	)
	return source, target, err
}

// mirror copies until ctx ends. Key, value, headers and timestamp stay what they are in the fetched record, and so does
// the partition: the same object is produced, under the name of the remote topic.
func mirror(ctx context.Context, it flow, source, target *kgo.Client) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			fail(err)
		}
	}
	for ctx.Err() == nil {
		fetches := source.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			record.Topic = it.remoteTopic
			// What was fetched before the end is still sent.
			target.Produce(context.WithoutCancel(ctx), record, acknowledged)
		})
	}
	return context.Cause(ctx)
}

func run(path string) error {
	settings, err := readProperties(path)
	if err != nil {
		return err
	}
	it, err := flowOf(settings)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	source, target, err := clients(settings, it)
	if err != nil {
		return err
	}
	defer source.Close()
	defer target.Close()
	if err := createRemoteTopic(ctx, it, source, target); err != nil {
		return err
	}
	err = mirror(ctx, it, source, target)
	if ctx.Err() == nil {
		return err
	}
	// It was asked to stop.
	last, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	return target.Flush(last)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s mm2.properties", os.Args[0])
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(heapLimit)
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
