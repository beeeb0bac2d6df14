package health

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxDetail bounds what one check may say in a condition, in bytes. Details have parts that others wrote.
	maxDetail = 512
	// maxDetails bounds how many checks a message tells of: twenty of them are 10 KiB, and metav1.Condition takes 32.
	maxDetails = 20
)

// counted begins each message, as Gardener's do.
func counted(successful, all int) string {
	return fmt.Sprintf("(%d/%d) Health checks successful", successful, all)
}

// numbered lists results, which are sorted.
func numbered(results []Result) string {
	var text strings.Builder
	for i, r := range results[:min(len(results), maxDetails)] {
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%d) ", i+1)
		if r.Check != "" {
			text.WriteString(r.Check + ": ")
		}
		text.WriteString(oneLine(r.Detail))
	}
	if more := len(results) - maxDetails; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// oneLine is the text without line breaks and control characters, and not too long.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if text == "" {
		return "no details"
	}
	return shortened(text, maxDetail)
}

func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func quoteShort(text string) string { return strconv.Quote(shortened(text, 64)) }
