package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// writeCorpus writes `each` objects of every kind, one per line: apiVersion, kind, protobuf in base64, JSON.
//
// The first object of a kind is empty. The second has all optional fields down to depth 6, and the others have random
// ones. The seed determines all random values. In the second object, durations, quantities, numbers or strings, raw
// JSON, floats and bytes are random too, and so may be empty. The JSON is that of the object after a round trip through protobuf, which does not distinguish a missing list
// from an empty one.
func writeCorpus(out io.Writer, seed int64, each int, only string) error {
	inProtobuf := protobuf.NewSerializer(known, known)
	inJSON := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{})
	for _, kind := range kinds() {
		if only != "" && !slices.Contains(strings.Split(only, ","), kind.String()) {
			continue
		}
		for number := range each {
			random := rand.New(rand.NewSource(seed<<16 ^ int64(number)))
			filled := reflect.New(kind.goType)
			if number > 0 {
				filler{random, number == 1}.fill(filled.Elem(), 0)
			}
			object := filled.Interface().(runtime.Object)
			object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
			encoded, err := runtime.Encode(inProtobuf, object)
			if err != nil {
				return fmt.Errorf("%s in protobuf: %w", kind, err)
			}
			decoded, _, err := inProtobuf.Decode(encoded, nil, nil)
			if err != nil {
				return fmt.Errorf("%s from protobuf: %w", kind, err)
			}
			decoded.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
			text, err := runtime.Encode(inJSON, decoded)
			if err != nil {
				return fmt.Errorf("%s in JSON: %w", kind, err)
			}
			// The JSON ends with a newline.
			_, err = fmt.Fprintf(out, "%s %s %s %s", kind.GroupVersion(), kind.Kind, base64.StdEncoding.EncodeToString(encoded), text)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// filler sets values in objects.
type filler struct {
	*rand.Rand
	everything bool
}

// maxDepth is the maximum depth of filled values. Some types contain themselves.
const maxDepth = 9

// isSet decides whether an optional value at this depth is set.
func (f filler) isSet(depth int) bool {
	return depth < maxDepth && (f.everything && depth < 6 || f.Intn(2) == 0)
}

// count returns the number of elements of a slice or map. A negative number means nil.
func (f filler) count(depth int) int {
	if !f.isSet(depth) {
		return f.Intn(2) - 1
	}
	return 1 + f.Intn(2)
}

func pick[T any](f filler, from ...T) T { return from[f.Intn(len(from))] }

func (f filler) text() string {
	if f.everything {
		return "text"
	}
	return pick(f, "", "a", "plain text", "\"quoted\"\\\n", "zwölf ☸ 𝄞", "<&>\u2028", "\x00\x1f\x7f", "cut \xe2\x82 off \xff")
}

func (f filler) integer() int64 {
	if f.everything {
		return 1 + f.Int63n(1<<20)
	}
	return pick(f, 0, 1, -1, 127, 128, math.MaxInt32, math.MinInt32, f.Int63())
}

func (f filler) moment() time.Time {
	if !f.everything && f.Intn(4) == 0 {
		return time.Time{}
	}
	return time.Unix(f.Int63n(1<<34)-1<<33, f.Int63n(int64(time.Second)))
}

func (f filler) json() []byte {
	return []byte(pick(f, `{}`, `{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`, `{"a":[1,-2,2.5,true,null,"\u00e9\n"],"b":{"c":{}}}`, `[]`, `"text"`, `null`))
}

func (f filler) fill(value reflect.Value, depth int) {
	switch special := value.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		special.Time = f.moment()
		return
	case *metav1.MicroTime:
		special.Time = f.moment()
		return
	case *metav1.Duration:
		special.Duration = pick(f, 0, 1, 1500, 2*time.Millisecond+500, -3*time.Second, 90*time.Minute, 36*time.Hour+time.Second/4, math.MinInt64)
		return
	case *resource.Quantity:
		*special = pick(f, resource.Quantity{}, resource.MustParse("100m"), resource.MustParse("1536Mi"), resource.MustParse("0.5"), resource.MustParse("1e3"),
			resource.MustParse("-12.5k"), *resource.NewMilliQuantity(f.Int63n(1<<40), resource.DecimalSI), *resource.NewQuantity(f.Int63(), resource.BinarySI))
		return
	case *intstr.IntOrString:
		*special = pick(f, intstr.FromInt32(0), intstr.FromInt32(-8080), intstr.FromString("http"), intstr.FromString(""))
		return
	case *runtime.RawExtension:
		special.Raw = f.json()
		return
	case *metav1.FieldsV1:
		special.SetRawBytes(f.json())
		return
	case *apiextensions.JSON:
		special.Raw = f.json()
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(f.text())
	case reflect.Bool:
		value.SetBool(f.everything || f.Intn(2) == 0)
	case reflect.Int32, reflect.Int64:
		value.SetInt(f.integer())
	case reflect.Float64:
		value.SetFloat(pick(f, 0, math.Copysign(0, -1), 1, -3, 0.1, 1e20, 1e21, 1<<60, -(1 << 63), 5e-324, math.MaxFloat64))
	case reflect.Pointer:
		if f.isSet(depth) {
			value.Set(reflect.New(value.Type().Elem()))
			f.fill(value.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				f.fill(value.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			if count := f.count(depth); count >= 0 {
				data := make([]byte, f.Intn(2)*count*(1+f.Intn(3)))
				f.Read(data)
				value.SetBytes(data)
			}
			return
		}
		if count := f.count(depth); count >= 0 {
			value.Set(reflect.MakeSlice(value.Type(), count, count))
			for i := range count {
				f.fill(value.Index(i), depth+1)
			}
		}
	case reflect.Map:
		count := f.count(depth)
		if count < 0 {
			return
		}
		value.Set(reflect.MakeMap(value.Type()))
		for i := range count {
			key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
			key.SetString(pick(f, "", "app.kubernetes.io/name", "zwölf \"☸\"") + fmt.Sprint(i))
			f.fill(element, depth+1)
			value.SetMapIndex(key, element)
		}
	default:
		panic(fmt.Sprintf("no way to fill %s", value.Type()))
	}
}
