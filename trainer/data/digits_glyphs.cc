#include "trainer/data/digits_glyphs.h"

namespace telegrad {
namespace {

// clang-format off
constexpr Point kZero[] = {{0, -1}, {.5f, -.6f}, {.58f, 0}, {.5f, .6f}, {0, 1},
                           {-.5f, .6f}, {-.58f, 0}, {-.5f, -.6f}, {0, -1}};
constexpr Point kZeroSlim[] = {{.1f, -1}, {.4f, -.5f}, {.4f, .3f}, {0, 1},
                               {-.4f, .5f}, {-.4f, -.4f}, {.2f, -.95f}};
constexpr Point kOne[] = {{-.35f, -.6f}, {.05f, -1}, {.05f, 1}};
constexpr Point kOnePlain[] = {{.05f, -1}, {0, 1}};
constexpr Point kOneFoot[] = {{-.35f, 1}, {.4f, 1}};
constexpr Point kTwo[] = {{-.5f, -.55f}, {-.25f, -.95f}, {.25f, -.93f},
                          {.5f, -.5f}, {.25f, 0}, {-.2f, .5f}, {-.55f, 1}};
constexpr Point kTwoBase[] = {{-.55f, 1}, {.6f, 1}};
constexpr Point kTwoLoop[] = {{-.45f, -.7f}, {0, -1}, {.45f, -.65f}, {.3f, 0},
                              {-.15f, .7f}, {-.5f, .85f}, {-.4f, .6f},
                              {.1f, .85f}, {.6f, .85f}};
constexpr Point kThreeTop[] = {{-.5f, -.8f}, {0, -1}, {.45f, -.75f},
                               {.4f, -.3f}, {-.1f, -.05f}};
constexpr Point kThreeBottom[] = {{-.1f, -.05f}, {.4f, .12f}, {.55f, .55f},
                                  {.15f, .97f}, {-.3f, .95f}, {-.55f, .7f}};
constexpr Point kThreeFlat[] = {{-.5f, -1}, {.5f, -1}, {-.05f, -.2f}};
constexpr Point kThreeBelly[] = {{-.05f, -.2f}, {.4f, 0}, {.52f, .45f},
                                 {.15f, .95f}, {-.5f, .8f}};
constexpr Point kFour[] = {{.25f, 1}, {.25f, -1}, {-.6f, .35f}, {.6f, .35f}};
constexpr Point kFourOpen[] = {{-.4f, -.95f}, {-.5f, .1f}, {.55f, .1f}};
constexpr Point kFourStem[] = {{.35f, -.8f}, {.25f, 1}};
constexpr Point kFiveTop[] = {{.5f, -1}, {-.4f, -1}, {-.45f, -.15f}};
constexpr Point kFiveBelly[] = {{-.45f, -.15f}, {0, -.3f}, {.45f, -.05f},
                                {.55f, .4f}, {.25f, .9f}, {-.2f, 1},
                                {-.55f, .75f}};
constexpr Point kFiveRound[] = {{.5f, -.95f}, {-.1f, -.95f}, {-.4f, -.5f},
                                {-.2f, -.15f}, {.35f, .1f}, {.4f, .6f},
                                {0, 1}, {-.5f, .85f}};
constexpr Point kSix[] = {{.4f, -.95f}, {-.1f, -.7f}, {-.45f, -.1f},
                          {-.5f, .45f}, {-.2f, .95f}, {.25f, .95f},
                          {.5f, .5f}, {.25f, .05f}, {-.15f, .05f},
                          {-.46f, .4f}};
constexpr Point kSixStraight[] = {{.3f, -1}, {-.25f, -.1f}, {-.45f, .5f},
                                  {-.1f, .98f}, {.35f, .8f}, {.35f, .3f},
                                  {0, .1f}, {-.4f, .4f}};
constexpr Point kSeven[] = {{-.55f, -1}, {.55f, -1}, {-.1f, 1}};
constexpr Point kSevenBar[] = {{-.3f, 0}, {.45f, 0}};
constexpr Point kEight[] = {{0, -.05f}, {-.4f, -.4f}, {-.35f, -.8f}, {0, -1},
                            {.35f, -.8f}, {.4f, -.4f}, {0, -.05f},
                            {-.5f, .35f}, {-.45f, .78f}, {0, 1},
                            {.45f, .78f}, {.5f, .35f}, {0, -.05f}};
constexpr Point kEightCross[] = {{.4f, -.75f}, {0, -1}, {-.4f, -.7f},
                                 {-.1f, -.2f}, {.4f, .4f}, {.25f, .9f},
                                 {-.2f, .95f}, {-.4f, .5f}, {.1f, -.1f},
                                 {.45f, -.7f}};
constexpr Point kNine[] = {{.46f, -.4f}, {.2f, -.05f}, {-.2f, -.05f},
                           {-.5f, -.45f}, {-.25f, -.93f}, {.2f, -.95f},
                           {.48f, -.5f}, {.45f, .1f}, {.25f, .6f},
                           {-.1f, 1}};
constexpr Point kNineLoop[] = {{.4f, -.6f}, {0, -.1f}, {-.4f, -.4f},
                               {-.3f, -.9f}, {.1f, -1}, {.4f, -.7f}};
constexpr Point kNineStem[] = {{.4f, -.7f}, {.35f, 1}};

constexpr Stroke kZeros[][1] = {{{true, kZero}}, {{true, kZeroSlim}}};
constexpr Stroke kOneWithFoot[] = {{false, kOne}, {false, kOneFoot}};
constexpr Stroke kOneLine[] = {{false, kOnePlain}};
constexpr Stroke kTwoPlain[] = {{true, kTwo}, {false, kTwoBase}};
constexpr Stroke kTwoLooped[] = {{true, kTwoLoop}};
constexpr Stroke kThreeRound[] = {{true, kThreeTop}, {true, kThreeBottom}};
constexpr Stroke kThreeAngled[] = {{false, kThreeFlat}, {true, kThreeBelly}};
constexpr Stroke kFourClosed[] = {{false, kFour}};
constexpr Stroke kFourOpened[] = {{false, kFourOpen}, {false, kFourStem}};
constexpr Stroke kFivePlain[] = {{false, kFiveTop}, {true, kFiveBelly}};
constexpr Stroke kFives[] = {{true, kFiveRound}};
constexpr Stroke kSixes[][1] = {{{true, kSix}}, {{true, kSixStraight}}};
constexpr Stroke kSevenPlain[] = {{false, kSeven}};
constexpr Stroke kSevenCrossed[] = {{false, kSeven}, {false, kSevenBar}};
constexpr Stroke kEights[][1] = {{{true, kEight}}, {{true, kEightCross}}};
constexpr Stroke kNineRound[] = {{true, kNine}};
constexpr Stroke kNineStraight[] = {{true, kNineLoop}, {false, kNineStem}};

constexpr Glyph kGlyphs[10][kGlyphsPerDigit] = {
    {kZeros[0], kZeros[1]},       {kOneWithFoot, kOneLine},
    {kTwoPlain, kTwoLooped},      {kThreeRound, kThreeAngled},
    {kFourClosed, kFourOpened},   {kFivePlain, kFives},
    {kSixes[0], kSixes[1]},       {kSevenPlain, kSevenCrossed},
    {kEights[0], kEights[1]},     {kNineRound, kNineStraight},
};
// clang-format on

}  // namespace

Glyph GlyphOf(int digit, int variant) { return kGlyphs[digit][variant]; }

}  // namespace telegrad
