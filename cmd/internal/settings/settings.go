// Package settings fills flags from the environment and from a file.
//
// A flag given on the command line wins, then MILLRACE_<FLAG> in the
// environment (upper case, "-" as "_"), then the key of the flag's name under
// "flags:" in the YAML file of --config, then the default.
package settings

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// The identity of the configuration file's format.
const (
	APIVersion = "millrace.io/v1alpha1"
	Kind       = "MillraceConfiguration"
)

// questions are the flags that print something, and set nothing.
var questions = map[string]bool{"help": true, "version": true}

// Fill sets every flag that was not given on the command line from the
// environment or from the file; file "" means none.
//
// Errors: the file cannot be read or has another format, a key is no flag, or a value is
// invalid for its flag; the message names file or variable.
func Fill(flags *pflag.FlagSet, file string, getenv func(string) (string, bool)) error {
	values, err := read(file)
	if err != nil {
		return err
	}
	for _, name := range sorted(values) {
		if flags.Lookup(name) == nil || questions[name] {
			return fmt.Errorf("read %s: %q is not a setting of this command; see --help for the names", file, name)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || questions[f.Name] {
			return
		}
		variable := Variable(f.Name)
		if text, ok := getenv(variable); ok {
			if failure := flags.Set(f.Name, text); failure != nil {
				err = fmt.Errorf("read %s from the environment: %w", variable, failure)
			}
			return
		}
		if text, ok := values[f.Name]; ok {
			if failure := flags.Set(f.Name, text); failure != nil {
				err = fmt.Errorf("read %s from %s: %w", f.Name, file, failure)
			}
		}
	})
	return err
}

// Variable is the environment variable of a flag.
func Variable(flag string) string {
	return "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func read(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var tree struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Flags      map[string]any `json:"flags"`
	}
	if err := yaml.UnmarshalStrict(text, &tree); err != nil {
		return nil, fmt.Errorf("read %s: %w; it needs apiVersion: %s, kind: %s and a map called flags", file, err, APIVersion, Kind)
	}
	if tree.APIVersion != APIVersion || tree.Kind != Kind {
		return nil, fmt.Errorf("read %s: it is %q %q, want apiVersion: %s and kind: %s", file, tree.APIVersion, tree.Kind, APIVersion, Kind)
	}
	values := map[string]string{}
	for name, value := range tree.Flags {
		if values[name], err = scalar(value); err != nil {
			return nil, fmt.Errorf("read %s: %s: %w", file, name, err)
		}
	}
	return values, nil
}

// scalar converts a YAML value to the text of a flag, and a list to a comma-separated
// text.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string, bool:
		return fmt.Sprint(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		parts := make([]string, 0, len(v))
		for _, item := range v {
			part, err := scalar(item)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ","), nil
	default:
		return "", fmt.Errorf("a setting is text, a number, true, false or a list of them, not %T", value)
	}
}

func sorted(values map[string]string) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
