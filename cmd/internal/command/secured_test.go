package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// flagOf is the value of a flag in arguments.
func flagOf(args []string, name string) string {
	for _, arg := range args {
		if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

// TestNoPasswordsInTheRepository: shipped files refer to passwords, and have none.
func TestNoPasswordsInTheRepository(t *testing.T) {
	ok(t, filepath.WalkDir(deployments, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, line := range heldPasswords(string(text)) {
			t.Errorf("%s holds a password: %s", path, line)
		}
		return err
	}))
	if len(heldPasswords("user: a, password: secret")) == 0 || len(heldPasswords("nats://a:secret@nats:4222")) == 0 {
		t.Error("a password is not noticed")
	}
}

func heldPasswords(text string) (lines []string) {
	for line := range strings.Lines(text) {
		_, word, is := strings.Cut(line, "password: ")
		_, login, url := strings.Cut(line, "nats://")
		login, _, at := strings.Cut(login, "@")
		_, given, named := strings.Cut(login, ":")
		if is && !strings.HasPrefix(word, "$") && !strings.HasPrefix(strings.TrimSpace(line), "#") || url && at && named && !strings.HasPrefix(given, "$") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
