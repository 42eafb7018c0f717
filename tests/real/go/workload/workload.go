// Package workload is what the client programs in Go share: their settings, the records they send, and the lines they
// write. ../../clients/README.md describes all three.
package workload

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const checksumBytes = 8

// Patience is how long a call that ends a transaction is tried again.
const Patience = 120 * time.Second

// Settings are the arguments of one program.
type Settings map[string]string

// Parse reads `key=value` arguments.
func Parse() Settings {
	settings := Settings{}
	for _, one := range os.Args[1:] {
		key, value, _ := strings.Cut(one, "=")
		settings[key] = value
	}
	return settings
}

// Text is a setting, or another value where it is not given.
func (s Settings) Text(name, otherwise string) string {
	if value, given := s[name]; given {
		return value
	}
	return otherwise
}

// Number is a setting as a number.
func (s Settings) Number(name string, otherwise float64) float64 {
	value, given := s[name]
	if !given {
		return otherwise
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		log.Fatal(name, err)
	}
	return number
}

// Records is how many to send or to read.
func (s Settings) Records() int64 { return int64(s.Number("records", math.MaxInt32)) }

// Partitions is how many the topic has.
func (s Settings) Partitions() int32 { return int32(s.Number("partitions", 1)) }

// ClientID is client.id.
func (s Settings) ClientID() string { return s.Text("client.id", "client") }

// Bootstrap holds the addresses to begin with.
func (s Settings) Bootstrap() []string { return strings.Split(s["bootstrap.servers"], ",") }

// Idempotent is enable.idempotence.
func (s Settings) Idempotent() bool { return s.Text("enable.idempotence", "true") == "true" }

// Linger is linger.ms.
func (s Settings) Linger() time.Duration {
	return time.Duration(s.Number("linger.ms", 5)) * time.Millisecond
}

// DeliveryTimeout is delivery.timeout.ms.
func (s Settings) DeliveryTimeout() time.Duration {
	return time.Duration(s.Number("delivery.timeout.ms", 120_000)) * time.Millisecond
}

// Mechanism is that of SASL, empty on listeners without it.
func (s Settings) Mechanism() string {
	if strings.HasPrefix(s.Text("security.protocol", "PLAINTEXT"), "SASL_") {
		return s["sasl.mechanism"]
	}
	return ""
}

// Token is one that nobody signed (RFC 7515, "none"), valid for an hour.
func (s Settings) Token() string {
	now := time.Now().Unix()
	body := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, s["sasl.username"], now, now+3600)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(body)) + "."
}

// TLS is nil on listeners without it.
func (s Settings) TLS() *tls.Config {
	if !strings.HasSuffix(s.Text("security.protocol", "PLAINTEXT"), "SSL") {
		return nil
	}
	pem, err := os.ReadFile(s["ssl.ca.location"])
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: pool}
}

// Record is one to send.
type Record struct {
	Sequence  int64
	Partition int32
	Key       []byte
	Value     []byte
}

// Record makes the one with this sequence.
func (s Settings) Record(sequence int64) Record {
	key := []byte(fmt.Sprintf("%s:%d", s.ClientID(), sequence))
	digest := sha256.Sum256(key)
	length := max(0, int(s.Number("size", 200))-checksumBytes)
	payload := bytes.Repeat(digest[:], length/len(digest)+1)[:length]
	return Record{sequence, int32(sequence % int64(s.Partitions())), key, append([]byte(crc(payload)), payload...)}
}

func crc(payload []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(payload)) }

// checksum is the CRC-32 of the payload as found; with "wrong-" before it where the value carries another one.
func checksum(value []byte) string {
	length := min(checksumBytes, len(value))
	found := crc(value[length:])
	if string(value[:length]) != found {
		return "wrong-" + found
	}
	return found
}

// Output writes a line for each record that was acknowledged or read, and the summary at the end.
type Output struct {
	settings  Settings
	file      *os.File
	buffer    *bufio.Writer
	lock      sync.Mutex
	started   time.Time
	ended     time.Time
	last      map[int32]int64
	lines     int64
	different int64
	bytes     int64
	failed    int64
	errors    map[string]int
}

// NewOutput opens the file; time counts from here.
func NewOutput(settings Settings) *Output {
	file, err := os.Create(settings["output"])
	if err != nil {
		log.Fatal(err)
	}
	now := time.Now()
	return &Output{
		settings: settings, file: file, buffer: bufio.NewWriter(file), started: now, ended: now,
		last: map[int32]int64{}, errors: map[string]int{},
	}
}

// Write adds one record; transaction is its state and number in mode transact. An offset of -1 is not known.
func (o *Output) Write(partition int32, offset int64, key, value []byte, transaction string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if key == nil {
		key = []byte("-")
	}
	fmt.Fprintf(o.buffer, "%d %d %s %s%s\n", partition, offset, key, checksum(value), transaction)
	if err := o.buffer.Flush(); err != nil {
		log.Fatal(err)
	}
	o.lines++
	o.bytes += int64(len(value))
	o.ended = time.Now()
	if last, known := o.last[partition]; !known || offset > last {
		o.last[partition] = offset
		o.different++
	}
}

// WriteTransaction adds the records of a transaction; offsets by sequence, where they are known.
func (o *Output) WriteTransaction(batch []Record, offsets map[int64]int64, state string, number int64) {
	for _, one := range batch {
		offset, known := offsets[one.Sequence]
		if !known {
			offset = -1
		}
		o.Write(one.Partition, offset, one.Key, one.Value, fmt.Sprintf(" %s %d", state, number))
	}
}

// Failed counts a record that was not acknowledged.
func (o *Output) Failed(err error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.failed++
	o.errors[err.Error()]++
}

// Different is how many records were read, each counted once.
func (o *Output) Different() int64 {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.different
}

// IsOver says whether the time is over.
func (o *Output) IsOver() bool {
	seconds := o.settings.Number("seconds", 0)
	return seconds > 0 && time.Since(o.started).Seconds() > seconds
}

// Await waits until the record with this sequence is due.
func (o *Output) Await(sequence int64) {
	if rate := o.settings.Number("rate", 0); rate > 0 {
		time.Sleep(time.Until(o.started.Add(time.Duration(float64(sequence) / rate * float64(time.Second)))))
	}
}

// Each hands on the records, each when it is due.
func (o *Output) Each(send func(Record)) {
	for sequence := int64(0); sequence < o.settings.Records() && !o.IsOver(); sequence++ {
		o.Await(sequence)
		send(o.settings.Record(sequence))
	}
}

// EachTransaction hands on the number, the records, and whether they are to be aborted.
func (o *Output) EachTransaction(run func(number int64, batch []Record, isToAbort bool)) {
	size := int64(o.settings.Number("per.transaction", 10))
	abortEvery := int64(o.settings.Number("abort.every", 0))
	var number int64
	var batch []Record
	end := func() {
		run(number, batch, abortEvery > 0 && (number+1)%abortEvery == 0)
		number, batch = number+1, nil
	}
	o.Each(func(record Record) {
		if batch = append(batch, record); int64(len(batch)) == size {
			end()
		}
	})
	if len(batch) > 0 {
		end()
	}
}

// Finish prints the summary as a line of JSON and ends the program: exit code 1 where something was not acknowledged.
func (o *Output) Finish() {
	o.lock.Lock()
	defer o.lock.Unlock()
	summary := map[string]any{
		"records": o.lines, "bytes": o.bytes, "seconds": o.ended.Sub(o.started).Seconds(),
		"failed": o.failed, "errors": o.errors,
	}
	if err := json.NewEncoder(os.Stdout).Encode(summary); err != nil {
		log.Fatal(err)
	}
	if o.failed > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}
