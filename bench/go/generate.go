package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// Values of each generated object at the positions that the replaying server overwrites, with the length of the new
// values.
const (
	versionMark = "7777777777"
	sentMark    = "8888888888888888888"
)

// generate writes the same pods as JSON and as protobuf. A record consists of its length, the positions of its version
// and of the time at which it was sent (little-endian, 32 bits each), and its bytes.
func generate(arguments []string) error {
	flags := flag.NewFlagSet("generate", flag.ExitOnError)
	out := flags.String("out", "", "output folder")
	count := flags.Int("count", 1000, "number of pods")
	seed := flags.Uint64("seed", 1, "seed of the pods")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	encodings := []struct {
		file   string
		encode func(*corev1.Pod) ([]byte, error)
	}{
		{"pods.json", func(pod *corev1.Pod) ([]byte, error) { return json.Marshal(pod) }},
		{"pods.protobuf", func(pod *corev1.Pod) ([]byte, error) { return pod.Marshal() }},
	}
	for _, encoding := range encodings {
		// The same seed each time, so that the pods are the same.
		cluster := newCluster(*seed)
		if err := write(filepath.Join(*out, encoding.file), *count, func() ([]byte, error) {
			return encoding.encode(cluster.next())
		}); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, count int, encoded func() ([]byte, error)) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	writer := bufio.NewWriterSize(file, 1<<20)
	for range count {
		record, err := encoded()
		if err != nil {
			return err
		}
		version, err := only(record, versionMark)
		if err != nil {
			return err
		}
		sent, err := only(record, sentMark)
		if err != nil {
			return err
		}
		header := make([]byte, 0, 12)
		for _, number := range []int{len(record), version, sent} {
			header = binary.LittleEndian.AppendUint32(header, uint32(number))
		}
		if _, err := writer.Write(append(header, record...)); err != nil {
			return err
		}
	}
	return writer.Flush()
}

// only returns the position of a mark, which must occur exactly once.
func only(record []byte, mark string) (int, error) {
	if found := bytes.Count(record, []byte(mark)); found != 1 {
		return 0, fmt.Errorf("the mark %s occurs %d times", mark, found)
	}
	return bytes.Index(record, []byte(mark)), nil
}

type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, seed))} }

// word returns a random part of a name, as Kubernetes generates it.
func (s source) word(length int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	word := make([]byte, length)
	for place := range word {
		word[place] = letters[s.IntN(len(letters))]
	}
	return string(word)
}

func (s source) hex(length int) string {
	const digits = "0123456789abcdef"
	text := make([]byte, length)
	for place := range text {
		text[place] = digits[s.IntN(16)]
	}
	return string(text)
}

func (s source) uid() string {
	return fmt.Sprintf("%s-%s-%s-%s-%s", s.hex(8), s.hex(4), s.hex(4), s.hex(4), s.hex(12))
}
