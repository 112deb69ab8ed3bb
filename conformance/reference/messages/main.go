// Messages prints facts about the protobuf of the built-in types, and objects encoded as protobuf. Both come from
// Kubernetes' own Go packages.
//
//	messages table     the facts by which Steadfast decodes protobuf: crates/steadfast-core/src/protobuf/table.txt
//	messages corpus    objects of every kind, filled at random, in both encodings
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
}

func run(arguments []string) (err error) {
	if len(arguments) == 0 {
		return errors.New("usage: messages table | corpus [-seed N] [-each N] [-kinds v1/Pod,apps/v1/Deployment]")
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer func() { err = errors.Join(err, out.Flush()) }()
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	switch arguments[0] {
	case "table":
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return writeTable(out)
	case "corpus":
		seed := flags.Int64("seed", 1, "seed of the objects")
		each := flags.Int("each", 10, "number of objects per kind")
		only := flags.String("kinds", "", "only these kinds")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return writeCorpus(out, *seed, *each, *only)
	default:
		return fmt.Errorf("unknown command: %s", arguments[0])
	}
}
