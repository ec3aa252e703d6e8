package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/settings"
)

const header = "apiVersion: millrace.io/v1alpha1\nkind: MillraceConfiguration\nflags:\n"

func TestPrecedence(t *testing.T) {
	file := write(t, header+"  data-dir: from-file\n  mode: from-file\n  controllers: [deployment, -replicaset]\n  workers: 1000000\n")
	flags := flagSet()
	if err := flags.Parse([]string{"--mode=from-command-line"}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"MILLRACE_DATA_DIR": "from-env", "MILLRACE_MODE": "from-env"}
	if err := settings.Fill(flags, file, lookup(env)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"mode": "from-command-line", "data-dir": "from-env", "workers": "1000000",
		"controllers": "[deployment,-replicaset]", "untouched": "default",
	} {
		if got := flags.Lookup(name).Value.String(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		env  map[string]string
		want string
	}{
		"unknown setting": {file: header + "  data-dri: x\n", want: `"data-dri" is not a setting`},
		"wrong kind":      {file: "apiVersion: v1\nkind: Pod\n", want: "want apiVersion: millrace.io/v1alpha1"},
		"stray field":     {file: header + "  mode: apply\nmood: good\n", want: "mood"},
		"wrong type":      {file: header + "  workers: many\n", want: "workers"},
		"nested value":    {file: header + "  mode: {a: b}\n", want: "mode"},
		"bad variable":    {env: map[string]string{"MILLRACE_WORKERS": "x"}, want: "MILLRACE_WORKERS"},
	} {
		t.Run(name, func(t *testing.T) {
			file := ""
			if tc.file != "" {
				file = write(t, tc.file)
			}
			err := settings.Fill(flagSet(), file, lookup(tc.env))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if err := settings.Fill(flagSet(), filepath.Join(t.TempDir(), "absent"), lookup(nil)); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func flagSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String("mode", "default", "")
	flags.String("data-dir", "default", "")
	flags.String("untouched", "default", "")
	flags.Int("workers", 1, "")
	flags.StringSlice("controllers", nil, "")
	return flags
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestQuestionsAreNoSettings: an environment variable with the name of such a flag has no effect.
func TestQuestionsAreNoSettings(t *testing.T) {
	flags := flagSet()
	flags.Bool("version", false, "")
	if err := settings.Fill(flags, "", lookup(map[string]string{"MILLRACE_VERSION": "v1.2.3"})); err != nil {
		t.Error(err)
	}
	if err := settings.Fill(flags, write(t, header+"  version: true\n"), lookup(nil)); err == nil || !strings.Contains(err.Error(), `"version" is not a setting`) {
		t.Errorf("a file may ask: %v", err)
	}
}
