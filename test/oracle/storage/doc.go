// Package storage compares the controllers of volumes with upstream's: binding, attaching, expansion, protection,
// ephemeral volumes and SELinux labels.
package storage
