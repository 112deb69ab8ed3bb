package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types with a special JSON form. The reader of the table knows each of them by name.
var special = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():                                "time",
	reflect.TypeFor[metav1.MicroTime]():                           "microtime",
	reflect.TypeFor[metav1.Duration]():                            "duration",
	reflect.TypeFor[resource.Quantity]():                          "quantity",
	reflect.TypeFor[intstr.IntOrString]():                         "intorstring",
	reflect.TypeFor[runtime.RawExtension]():                       "raw",
	reflect.TypeFor[metav1.FieldsV1]():                            "raw",
	reflect.TypeFor[apiextensions.JSON]():                         "raw",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "orbool",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "orarray",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "orstrings",
}

var scalars = map[reflect.Kind]string{
	reflect.String:  "string",
	reflect.Bool:    "bool",
	reflect.Int32:   "int32",
	reflect.Int64:   "int64",
	reflect.Float64: "double",
}

type table struct {
	kinds    map[reflect.Type][]string
	messages map[string][]string // lines of each message, by its name
	waiting  []reflect.Type
}

// writeTable writes the facts that a reader of Kubernetes' protobuf needs to produce the JSON of the API server.
func writeTable(out io.Writer) error {
	made := table{kinds: map[reflect.Type][]string{}, messages: map[string][]string{}}
	for _, kind := range kinds() {
		made.kinds[kind.goType] = append(made.kinds[kind.goType], kind.String())
		made.waiting = append(made.waiting, kind.goType)
	}
	for len(made.waiting) > 0 {
		next := made.waiting[len(made.waiting)-1]
		made.waiting = made.waiting[:len(made.waiting)-1]
		if _, done := made.messages[name(next)]; done {
			continue
		}
		lines, err := made.message(next)
		if err != nil {
			return fmt.Errorf("%s: %w", next, err)
		}
		made.messages[name(next)] = lines
	}
	fmt.Fprintf(out, "# Made by conformance/reference/messages from k8s.io/api %s; not to be edited.\n", version("k8s.io/api"))
	var names []string
	for name := range made.messages {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := fmt.Fprintln(out, strings.Join(made.messages[name], "\n")); err != nil {
			return err
		}
	}
	return nil
}

// version returns the version of a module of this program.
func version(module string) string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range built.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "of an unknown version"
}

// name returns the name of a type's message, without the common prefix.
func name(message reflect.Type) string {
	path := message.PkgPath()
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apiextensions-apiserver/pkg/apis/", "k8s.io/kube-aggregator/pkg/apis/"} {
		path = strings.TrimPrefix(path, prefix)
	}
	return strings.ReplaceAll(path, "/", ".") + "." + message.Name()
}

func (t *table) message(message reflect.Type) ([]string, error) {
	kinds := t.kinds[message]
	slices.Sort(kinds)
	lines := []string{strings.Join(append([]string{name(message)}, kinds...), " ")}
	fields := map[int]string{}
	if message.Kind() == reflect.Slice {
		// A named slice is a message with its elements.
		element, err := t.value(message.Elem())
		if err != nil {
			return nil, err
		}
		return append(lines, " 1 - []"+element), nil
	}
	for i := range message.NumField() {
		field := message.Field(i)
		number, line, err := t.field(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.Name, err)
		}
		if line == "" {
			continue
		}
		if _, taken := fields[number]; taken {
			return nil, fmt.Errorf("two fields with the number %d", number)
		}
		fields[number] = line
	}
	var numbers []int
	for number := range fields {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		lines = append(lines, fields[number])
	}
	return lines, nil
}

// field returns a line of the table, or nothing if either encoding omits the field.
func (t *table) field(field reflect.StructField) (int, string, error) {
	jsonName, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	tag, inProtobuf := field.Tag.Lookup("protobuf")
	if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
		if inProtobuf {
			return 0, "", errors.New("a TypeMeta in protobuf, whose place is the envelope")
		}
		return 0, "", nil
	}
	if jsonName == "-" && options == "" || tag == "-" {
		return 0, "", nil
	}
	if !inProtobuf {
		return 0, "", errors.New("in JSON and not in protobuf")
	}
	parts := strings.Split(tag, ",")
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0, "", err
	}
	if isMessage(field.Type) && field.Type.Kind() == reflect.Slice {
		return 0, "", errors.New("a slice that is a message, and no map's value")
	}
	inline := field.Anonymous && jsonName == ""
	if jsonName == "" && !inline {
		return 0, "", errors.New("without a name in JSON")
	}
	prefix, kind := "", field.Type
	isBytes := func(kind reflect.Type) bool {
		return kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Uint8
	}
	switch {
	case kind.Kind() == reflect.Pointer:
		prefix, kind = "?", kind.Elem()
	case isMessage(kind) || isBytes(kind):
	case kind.Kind() == reflect.Slice:
		prefix, kind = "[]", kind.Elem()
	case kind.Kind() == reflect.Map:
		if kind.Key().Kind() != reflect.String {
			return 0, "", fmt.Errorf("a map by %s", kind.Key())
		}
		prefix, kind = "{}", kind.Elem()
	}
	value, err := t.value(kind)
	if err != nil {
		return 0, "", err
	}
	words := []string{fmt.Sprintf(" %d", number), jsonName, prefix + value}
	if inline {
		if prefix != "" || special[kind] != "" || kind.Kind() != reflect.Struct {
			return 0, "", errors.New("inline, and no plain struct")
		}
		words[1] = "-"
	}
	for _, option := range strings.Split(options, ",") {
		switch option {
		case "omitempty":
			words = append(words, "o")
		case "omitzero":
			if value != "time" {
				return 0, "", errors.New("omitzero on a field that is not a time")
			}
			words = append(words, "z")
		case "", "inline":
		default:
			return 0, "", fmt.Errorf("the option %q", option)
		}
	}
	return number, strings.Join(words, " "), nil
}

// value returns the word for a single value of kind. The wire format follows from it. The tags are wrong for some
// fields, and the code that reads and writes them does not use them.
func (t *table) value(kind reflect.Type) (string, error) {
	word := ""
	switch {
	case special[kind] != "":
		word = special[kind]
		// The words that start with "or" stand for a schema or another value. They need the message of the schema.
		if strings.HasPrefix(word, "or") {
			t.waiting = append(t.waiting, reflect.TypeFor[apiextensions.JSONSchemaProps]())
		}
	case isMessage(kind):
		if _, ok := reflect.New(kind).Interface().(interface{ MarshalJSON() ([]byte, error) }); ok {
			return "", fmt.Errorf("%s writes itself in JSON", kind)
		}
		t.waiting = append(t.waiting, kind)
		word = name(kind)
	case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Uint8:
		word = "bytes"
	case scalars[kind.Kind()] != "":
		word = scalars[kind.Kind()]
	default:
		return "", fmt.Errorf("no way to write %s", kind)
	}
	return word, nil
}

// isMessage returns true if values of kind are messages of their own.
func isMessage(kind reflect.Type) bool {
	_, ok := reflect.New(kind).Interface().(interface{ Unmarshal([]byte) error })
	return ok
}
