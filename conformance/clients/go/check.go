package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"time"
)

// Timeout for asynchronous effects. A real server needs milliseconds.
const patience = 30 * time.Second

func passed(name string) { fmt.Println("ok      " + name) }

// The first difference ends the program, because later differences may be its consequences.
func fail(name, format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "FAILED  %s: %s\n", name, fmt.Sprintf(format, arguments...))
	os.Exit(1)
}

// must ends the program if the preparation of a check fails.
func must(name string, err error) {
	if err != nil {
		fail(name, "%v", err)
	}
}

// succeeds is a check: the operation returns no error.
func succeeds(name string, err error) {
	must(name, err)
	passed(name)
}

func equal(name string, got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		fail(name, "got %#v, wanted %#v", got, wanted)
	}
	passed(name)
}

func holds(name string, condition bool, seen any) {
	if !condition {
		fail(name, "failed with %+v", seen)
	}
	passed(name)
}

// refused checks the kind of an error, as client-go reads it from the Status of the response.
func refused(name string, is func(error) bool, err error) {
	if err == nil || !is(err) {
		fail(name, "wanted another error than: %v", err)
	}
	passed(name)
}

func eventually(name string, attempt func() bool) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if attempt() {
			passed(name)
			return
		}
	}
	fail(name, "not met within %s", patience)
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 4*patience)
}
