// Command rules states what the real API server accepts in validation rules of custom resources.
//
//	go run ./rules functions                       functions and operators, one overload in each line
//	go run ./rules verdicts PROPERTIES <RULES      verdicts on rules, one rule in each line
//
// An overload without a receiver is `name: (arguments) -> result`, one with a receiver is `name: receiver.(arguments) ->
// result`. The type checker of steadfast-cel reads this list.
//
// PROPERTIES is a file with the properties of the object that the rules read. A verdict is the rule and its errors, each
// after a tab. Text behind the first tab of an input line is ignored, and comments are kept, so that a list of verdicts can
// be renewed from itself.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	rules "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	limits "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "functions":
		functions(set)
	case len(os.Args) == 3 && os.Args[1] == "verdicts":
		err = verdicts(set, os.Args[2])
	default:
		err = fmt.Errorf("usage: rules functions | rules verdicts PROPERTIES")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

func functions(set *environment.EnvSet) {
	var lines []string
	for name, function := range set.NewExpressionsEnv().Functions() {
		// The checker has rules of its own for logical operators and selections. Programs cannot call the others.
		skipped := []string{"_&&_", "_||_", "_?._", "in", "_in_", "__not_strictly_false__"}
		if slices.Contains(skipped, name) || (strings.Contains(name, "@") && name != "@in") {
			continue
		}
		for _, overload := range function.OverloadDecls() {
			var types []string
			for _, argument := range overload.ArgTypes() {
				types = append(types, cel.FormatCELType(argument))
			}
			receiver := ""
			if overload.IsMemberFunction() {
				receiver, types = types[0]+".", types[1:]
			}
			result := cel.FormatCELType(overload.ResultType())
			lines = append(lines, fmt.Sprintf("%s: %s(%s) -> %s", name, receiver, strings.Join(types, ", "), result))
		}
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(slices.Compact(lines), "\n"))
}

func verdicts(set *environment.EnvSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var of v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(`{"type": "object", "properties": `+string(text)+`}`), &of); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		rule, _, _ := strings.Cut(lines.Text(), "\t")
		if strings.HasPrefix(rule, "#") {
			fmt.Println(rule)
			continue
		}
		of.XValidations = v1.ValidationRules{{Rule: rule}}
		var internal apiextensions.JSONSchemaProps
		if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&of, &internal, nil); err != nil {
			return err
		}
		structural, err := schema.NewStructural(&internal)
		if err != nil {
			return err
		}
		results, err := compile(structural, set)
		if err != nil {
			return err
		}
		verdict := rule
		if failed := results[0].Error; failed != nil {
			for _, part := range parts(failed.Detail) {
				verdict += "\t" + part
			}
		}
		fmt.Println(verdict)
	}
	return lines.Err()
}

// compile compiles the rules of a schema. The validators of cel-go panic on some expressions with optional items.
func compile(structural *schema.Structural, set *environment.EnvSet) (results []rules.CompilationResult, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			results = []rules.CompilationResult{{Error: &apicel.Error{Detail: "panic"}}}
		}
	}()
	declared := model.SchemaDeclType(structural, false)
	return rules.Compile(structural, declared, limits.PerCallLimit, set, rules.NewExpressionsEnvLoader())
}

// unstable matches the generated name of the type of `self`, which differs in each compilation.
var unstable = regexp.MustCompile(`selfType\d+(\.[\w@]+)*`)

// parts returns the errors of a compilation, each with its column.
func parts(detail string) []string {
	var found []string
	for _, line := range strings.Split(detail, "\n") {
		if _, located, ok := strings.Cut(line, "ERROR: <input>:1:"); ok {
			line = located
		} else if strings.HasPrefix(line, " | ") {
			continue
		}
		found = append(found, unstable.ReplaceAllString(line, "object"))
	}
	return found
}
