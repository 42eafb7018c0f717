// Package lines reads what is asked of a client as lines of JSON, and writes its answers.
package lines

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strconv"
)

// Part is one type of an entity; a nil name is the default.
type Part struct {
	Type string  `json:"type"`
	Name *string `json:"name"`
}

// Component is one condition of a filter. Match types are those on the wire.
type Component struct {
	Type      string  `json:"type"`
	MatchType int     `json:"match_type"`
	Match     *string `json:"match"`
}

// Filter says what to describe.
type Filter struct {
	Components []Component `json:"components"`
	Strict     bool        `json:"strict"`
}

// Op sets a key, or removes it where the value is nil.
type Op struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// Number is the value to set, and 0 for a removal.
func (op Op) Number() float64 {
	if op.Value == nil {
		return 0
	}
	number, err := strconv.ParseFloat(*op.Value, 64)
	if err != nil {
		log.Fatal(err)
	}
	return number
}

// Alteration is what to change on one entity.
type Alteration struct {
	Entity []Part `json:"entity"`
	Ops    []Op   `json:"ops"`
}

// Change says what to alter.
type Change struct {
	Alterations  []Alteration `json:"alterations"`
	ValidateOnly bool         `json:"validate_only"`
}

// Value is a key with its value as text.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Valued is a key with its value.
func Valued(key string, value float64) Value {
	return Value{key, strconv.FormatFloat(value, 'g', -1, 64)}
}

// Entity is one that was described.
type Entity struct {
	Entity []Part  `json:"entity"`
	Values []Value `json:"values"`
}

// Result is how an alteration went.
type Result struct {
	Entity []Part `json:"entity"`
	Code   int16  `json:"code"`
	Error  string `json:"error"`
}

// Answer holds what was asked for, or the error of the whole request.
type Answer struct {
	Entities []Entity `json:"entities"`
	Results  []Result `json:"results"`
	Error    string   `json:"error"`
}

// Client does what is asked.
type Client interface {
	Describe(Filter) Answer
	Alter(Change) Answer
}

// Failed is the answer where the whole request failed.
func Failed(err error) Answer {
	return Answer{Error: err.Error()}
}

// Serve answers every line of standard input until it ends.
func Serve(client Client) {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var question struct {
			Describe *Filter `json:"describe"`
			Alter    *Change `json:"alter"`
		}
		if err := questions.Decode(&question); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		var answer Answer
		if question.Describe != nil {
			answer = client.Describe(*question.Describe)
		} else {
			answer = client.Alter(*question.Alter)
		}
		if err := answers.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}
