package exemption

import ()

// LetLines counts a use of an exemption if the lines have changed.
func LetLines(id string, lines []string, as func(string) string) []string {
	return Lets(id, lines, Relined(lines, as))
}

// Relined are converted lines, without those that become empty.
func Relined(lines []string, as func(string) string) (out []string) {
	for _, line := range lines {
		if line = as(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
